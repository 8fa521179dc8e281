//! `notify` in Codex's `config.toml`: one command, which needs no trust. One of the user's own is left alone.

use toml_edit::{Array, DocumentMut, Item, value};

/// What stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notify {
    /// Nothing.
    None,
    /// Ours, with this program.
    Ours(String),
    /// Another program.
    Another,
}

/// What stands in the text.
///
/// # Errors
/// What is wrong with the text, with line and column.
pub fn find(text: &str) -> Result<Notify, String> {
    let document = parse(text)?;
    Ok(match document.get("notify") {
        None => Notify::None,
        Some(item) => match words(item).as_deref() {
            Some([program, hook, agent]) if hook == "hook" && agent == "codex" => {
                Notify::Ours(program.clone())
            }
            _ => Notify::Another,
        },
    })
}

/// Puts ours there, unless another is.
///
/// # Errors
/// As [`find`].
pub fn add(text: &str, program: &str) -> Result<String, String> {
    if find(text)? == Notify::Another {
        return Ok(text.to_owned());
    }
    let mut document = parse(text)?;
    let ours: Array = [program, "hook", "codex"].into_iter().collect();
    document["notify"] = value(ours);
    Ok(document.to_string())
}

/// Takes ours out.
///
/// # Errors
/// As [`find`].
pub fn remove(text: &str) -> Result<String, String> {
    let mut document = parse(text)?;
    if matches!(find(text)?, Notify::Ours(_)) {
        document.remove("notify");
    }
    Ok(document.to_string())
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    // The message goes over several lines; the first says where, the last what.
    text.parse::<DocumentMut>().map_err(|e| {
        let whole = e.to_string();
        let mut lines = whole.lines();
        match (lines.next(), lines.next_back()) {
            (Some(first), Some(last)) => format!("{first}: {last}"),
            _ => whole,
        }
    })
}

fn words(item: &Item) -> Option<Vec<String>> {
    let all = item.as_array()?.iter();
    all.map(|word| word.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_and_goes_and_the_rest_stays() {
        for text in [
            "",
            "# mine\nmodel = \"x\" # why\n\n[tools]\nweb = true\n",
            "[a]\nb = 1\n",
        ] {
            let added = add(text, "/usr/bin/stepback").unwrap();
            assert_eq!(
                find(&added).unwrap(),
                Notify::Ours("/usr/bin/stepback".into()),
                "{added}"
            );
            assert_eq!(add(&added, "/usr/bin/stepback").unwrap(), added);
            assert_eq!(
                find(&add(&added, "/new").unwrap()).unwrap(),
                Notify::Ours("/new".into())
            );
            assert_eq!(remove(&added).unwrap(), text);
        }
    }

    #[test]
    fn another_is_left_alone() {
        let text = "notify = [\"say\", \"done\"]\n";
        assert_eq!(find(text).unwrap(), Notify::Another);
        assert_eq!(add(text, "/x").unwrap(), text);
        assert_eq!(remove(text).unwrap(), text);
        assert_eq!(find("notify = 7").unwrap(), Notify::Another);
    }

    #[test]
    fn what_is_broken_is_an_error_that_says_where() {
        let error = add("a = 1\nb = = 2\n", "/x").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }
}
