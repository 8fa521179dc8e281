//! Letting a root go: only the one that was named, and all of it.

use stepback_tests::Sandbox;

#[test]
fn forgetting_a_nested_root_leaves_the_one_around_it() {
    let sandbox = Sandbox::new();
    let outer = sandbox.project("o");
    outer.sh("mkdir in plain; printf '1\n' > a; printf '1\n' > in/b");
    outer.json(&["attach", "."]);
    outer.json(&["attach", "in"]);
    let inner_store = outer.json(&["-C", "in", "status"])["root"]["store"]["path"].clone();
    let gaps = sandbox.state().join("gaps");
    let id = outer.json(&["-C", "in", "status"])["root"]["id"].clone();
    let gaps = gaps.join(format!("{}.json", id.as_str().unwrap()));
    std::fs::write(&gaps, "[]").unwrap();
    outer.json(&["detach", "in"]);
    assert!(gaps.exists(), "it may come back");
    let forgotten = outer.json(&["detach", "in", "--forget", "-y"]);
    assert_eq!(forgotten["forgotten"], true);
    assert!(
        forgotten["id"].as_str().unwrap().starts_with("in-"),
        "{forgotten}"
    );
    assert!(!std::path::Path::new(inner_store.as_str().unwrap()).exists());
    assert!(!gaps.exists(), "all of it");
    assert_eq!(outer.ids().len(), 1, "the root around it has its history");

    let refused = outer.fails(&["detach", "plain", "--forget", "-y"], 1, "not_attached");
    assert!(
        refused["hint"].as_str().unwrap().contains("stepback detach "),
        "{refused}"
    );
    assert_eq!(outer.ids().len(), 1);
    outer.json(&["-C", "plain", "detach", "-y"]);
    assert_eq!(
        outer.status()["root"],
        serde_json::Value::Null,
        "without a name it is the root around"
    );
}

#[test]
fn a_git_directory_is_never_a_root() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("g");
    project.sh("git init -q . && git commit -q --allow-empty -m 1 && git init -q --bare ../bare.git");
    for path in [".git", ".git/refs", "../bare.git"] {
        project.fails(&["attach", "--here", path], 1, "refused_root");
        project.fails(&["attach", "--here", "--force", path], 1, "refused_root");
    }
}
