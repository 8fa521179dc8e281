//! Clients that read, that read late, and that are gone.

use super::*;

#[test]
fn what_a_client_does_not_take_goes_to_a_file() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut outlet, mut inlet) = pair(runtime.handle().clone(), dir.path().to_owned());
    let bytes: Vec<u8> = (0..30 * CHUNK_BYTES_MAX + 5).map(|n| n as u8).collect();
    let mut to = Bytes::new(&mut outlet);
    to.write_all(&bytes).unwrap();
    to.flush().unwrap();
    outlet.finish(Ok(Reply::Empty));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the file has no name"
    );
    let mut got = Vec::new();
    let mut done = 0;
    let mut take = |answer| match answer {
        Answer::Item(Item::Bytes(chunk)) => got.extend(chunk),
        Answer::Done(Reply::Empty) => done += 1,
        other => panic!("{other:?}"),
    };
    while let Some(batch) = runtime.block_on(inlet.next()) {
        frames(&batch).into_iter().for_each(&mut take);
    }
    let Some(Rest::File(mut file)) = inlet.rest() else {
        panic!("the queue holds less than this")
    };
    while let Some(answer) = frame::read(&mut file).unwrap() {
        take(answer);
    }
    assert!(done == 1 && got == bytes);
}

fn frames(batch: &Batch) -> Vec<Answer> {
    let mut from = batch.frames.as_slice();
    std::iter::from_fn(|| frame::read(&mut from).unwrap()).collect()
}

#[test]
fn what_comes_together_goes_together() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut outlet, mut inlet) = pair(runtime.handle().clone(), "/nowhere".into());
    outlet.item(Item::Bytes(vec![1])).unwrap();
    outlet.since = Some(Instant::now() + Duration::from_secs(60));
    outlet.item(Item::Bytes(vec![2])).unwrap();
    outlet.item(Item::Bytes(vec![3; CHUNK_BYTES_MAX])).unwrap();
    let first = runtime.block_on(inlet.next()).unwrap();
    assert_eq!(frames(&first).len(), 2, "the third has no room beside them");
    outlet.since = Some(Instant::now() - LINGER);
    outlet.item(Item::Bytes(vec![4])).unwrap();
    outlet.finish(Ok(Reply::Empty));
    let mut rest = Vec::new();
    while let Some(batch) = runtime.block_on(inlet.next()) {
        assert!(batch.frames.len() <= BATCH_BYTES_MAX + 100);
        rest.extend(frames(&batch));
    }
    assert_eq!(rest.len(), 3);
    assert_eq!(rest.last(), Some(&Answer::Done(Reply::Empty)));
}

#[test]
fn an_answer_too_large_for_a_frame_ends_with_the_reason() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut outlet, mut inlet) = pair(runtime.handle().clone(), "/nowhere".into());
    let large = Item::Bytes(vec![0; stepback_proto::FRAME_BYTES_MAX + 1]);
    assert_eq!(outlet.item(large), Ok(()));
    assert_eq!(outlet.item(Item::Bytes(vec![1])), Err(Gone));
    let batch = runtime.block_on(inlet.next()).unwrap();
    assert!(batch.last && matches!(frames(&batch)[..], [Answer::Failed(_)]));
}

/// A full queue, and nobody who reads.
fn stuck(spool: PathBuf) -> (tokio::runtime::Runtime, Outlet, Inlet) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (mut outlet, inlet) = pair(runtime.handle().clone(), spool);
    for _ in 0..QUEUE_MAX {
        outlet.item(Item::Bytes(vec![1])).unwrap();
        outlet.flush().unwrap();
    }
    (runtime, outlet, inlet)
}

fn rest_of(runtime: &tokio::runtime::Runtime, mut inlet: Inlet) -> Rest {
    for _ in 0..QUEUE_MAX {
        assert!(runtime.block_on(inlet.next()).is_some());
    }
    assert!(runtime.block_on(inlet.next()).is_none());
    inlet.rest().expect("more than the queue holds")
}

#[test]
fn the_patience_is_for_the_whole_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, mut outlet, mut inlet) = stuck(dir.path().to_owned());
    let wait = Duration::from_millis(20);
    let reader = runtime.spawn(async move {
        tokio::time::sleep(wait).await;
        inlet.next().await;
        inlet
    });
    outlet.item(Item::Bytes(vec![2])).unwrap();
    outlet.flush().unwrap();
    let inlet = runtime.block_on(reader).unwrap();
    assert!(outlet.patience < PATIENCE, "{:?}", outlet.patience);
    outlet.patience = Duration::ZERO;
    outlet.item(Item::Bytes(vec![3])).unwrap();
    outlet.flush().unwrap();
    outlet.finish(Ok(Reply::Empty));
    assert!(matches!(rest_of(&runtime, inlet), Rest::File(_)));
}

#[test]
fn an_answer_that_cannot_be_kept_ends_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    // No spool, or one that is full.
    for spool in [dir.path().join("none"), dir.path().to_owned()] {
        let (runtime, mut outlet, inlet) = stuck(spool.clone());
        outlet.patience = Duration::ZERO;
        if spool.exists() {
            outlet.item(Item::Bytes(vec![2])).unwrap();
            outlet.flush().unwrap();
            let Spilled::File { room, .. } = &mut outlet.spilled else {
                panic!("no file")
            };
            *room = 3;
        }
        outlet.item(Item::Bytes(vec![3])).unwrap();
        assert_eq!(outlet.flush(), Err(Gone));
        outlet.finish(Ok(Reply::Empty));
        let Rest::Lost(failure) = rest_of(&runtime, inlet) else {
            panic!("a part of the frames")
        };
        assert!(failure.message.starts_with("it is done, but "), "{failure:?}");
    }
}

#[test]
fn a_panic_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (outlet, mut inlet) = pair(runtime.handle().clone(), "/nowhere".into());
    let thread = std::thread::spawn(move || {
        let _outlet = outlet;
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    let told = runtime.block_on(inlet.next());
    let told = frames(&told.expect("a last word"));
    assert!(matches!(told[..], [Answer::Failed(_)]), "{told:?}");
    assert!(runtime.block_on(inlet.next()).is_none());
}

#[test]
fn a_client_that_went_away_stops_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut outlet, inlet) = pair(runtime.handle().clone(), "/nowhere".into());
    drop(inlet);
    assert_eq!(outlet.item(Item::Bytes(vec![1])), Err(Gone));
    assert!(
        Bytes::new(&mut outlet)
            .write_all(&vec![0; CHUNK_BYTES_MAX])
            .is_err()
    );
}
