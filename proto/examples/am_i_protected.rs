//! Asks the running daemon about a directory: `cargo run -p stepback-proto --example am_i_protected -- DIRECTORY`.
//!
//! All that a program needs to talk to `stepbackd`: find its socket, say hello, send one request, read the answer to its
//! end. It starts no daemon.

use std::env;
use std::error::Error;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use stepback_proto::{Answer, Hello, Item, MAGIC, Note, PROTOCOL, Reply, Request, Verb, Welcome, frame};

/// `STEPBACK_SOCKET`, else what the daemon's note in its state directory names.
fn socket() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(socket) = env::var_os("STEPBACK_SOCKET") {
        return Ok(socket.into());
    }
    let state = match (env::var_os("STEPBACK_STATE_DIR"), env::var_os("XDG_STATE_HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(base)) => PathBuf::from(base).join("stepback"),
        (None, None) => {
            PathBuf::from(env::var_os("HOME").ok_or("HOME isn't set")?).join(".local/state/stepback")
        }
    };
    let note: Note = serde_json::from_slice(&std::fs::read(state.join("daemon.json"))?)?;
    Ok(note.socket())
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let place = std::fs::canonicalize(place)?;
    let mut stream = UnixStream::connect(socket()?)?;

    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
    };
    frame::write(&mut stream, &hello)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let welcome: Welcome = frame::read(&mut answers)?.ok_or("the daemon hung up")?;
    if welcome.protocol != PROTOCOL {
        return Err(format!(
            "the daemon speaks protocol {}, this program {PROTOCOL}",
            welcome.protocol
        )
        .into());
    }

    let request = Request {
        place: place.into(),
        verb: Verb::Status { verify: false },
    };
    frame::write(&mut stream, &request)?;
    while let Some(answer) = frame::read(&mut answers)? {
        match answer {
            Answer::Progress(progress) => eprintln!("{}: {}", progress.what, progress.done),
            Answer::Item(Item::NotCaptured(path)) => {
                println!("not captured: {} ({})", path.path.lossy(), path.reason);
            }
            Answer::Item(_) => {}
            Answer::Done(Reply::Status(status)) => match status.root {
                Some(root) => println!(
                    "{}: {:?}, {} checkpoints",
                    root.path.lossy(),
                    root.state,
                    root.checkpoints
                ),
                None => println!("no attached directory holds this place"),
            },
            Answer::Done(_) => return Err("not an answer to this request".into()),
            Answer::Failed(failure) => return Err(format!("{} ({})", failure.message, failure.hint).into()),
        }
    }
    Ok(())
}
