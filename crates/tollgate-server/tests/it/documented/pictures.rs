//! The pictures in docs/pictures are what the program draws today.

use std::path::Path;
use std::process::Command;

use super::page::{Page, ROOT};

#[test]
fn the_pictures_are_what_the_program_draws() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = Command::new(format!("{ROOT}/tools/pictures"))
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(drawn.status.success(), "{drawn:?}");
    let page = Page::read("docs/algorithms.md").text;
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kept = Path::new(ROOT).join("docs/pictures").join(&name);
        let same = std::fs::read(&kept).is_ok_and(|kept| kept == std::fs::read(&path).unwrap());
        assert!(
            same,
            "docs/pictures/{name} is an old one: run `make pictures`"
        );
        assert!(
            page.contains(&format!("(pictures/{name})")),
            "docs/algorithms.md does not show {name}"
        );
        count += 1;
    }
    let kept = std::fs::read_dir(Path::new(ROOT).join("docs/pictures")).unwrap();
    assert_eq!(kept.count(), count, "a picture that nobody draws");
}
