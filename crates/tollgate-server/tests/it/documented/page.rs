//! A page of Markdown as blocks of code, with what the comments before them say about running them.

use std::path::{Path, PathBuf};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What is to be done, in the order of the page.
pub(super) enum Step {
    /// A command that readers do not see: what they have and a test has not.
    Before(String),
    Block(Block),
}

pub(super) struct Block {
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    pub(super) not_run: Option<String>,
    pub(super) file: Option<String>,
}

pub(super) struct Page {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) steps: Vec<Step>,
}

impl Page {
    pub(super) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        let steps = steps(name, &text);
        let name = name.to_owned();
        Self { name, text, steps }
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.steps.iter().filter_map(|step| match step {
            Step::Block(block) => Some(block),
            Step::Before(_) => None,
        })
    }
}

/// Every page of the project, by its path.
pub(super) fn names() -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // What is built, fetched or drawn is nobody's page.
            let foreign = ["target", "simulation", "node_modules", "corpus"];
            if path.is_dir() && !name.starts_with('.') && !foreign.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".md") {
                let path = path.strip_prefix(ROOT).unwrap();
                names.push(path.display().to_string());
            }
        }
    }
    names.sort();
    names
}

fn steps(name: &str, text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut not_run, mut file) = (None, None);
    let mut lines = (1..).zip(text.lines());
    while let Some((line, said)) = lines.next() {
        let said = said.trim_start();
        let comment = |word: &str| {
            let inner = said.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
            Some(inner.strip_prefix(word)?.trim().to_owned())
        };
        if let Some(command) = comment("before:") {
            steps.push(Step::Before(command));
        } else if let Some(reason) = comment("not run:") {
            assert!(reason.len() > 10, "{name}:{line}: say why it is not run");
            not_run = Some(reason);
        } else if let Some(path) = comment("file:") {
            file = Some(path);
        } else if let Some(info) = said.strip_prefix("```") {
            let language = info.split([',', ' ']).next().unwrap_or_default();
            let inside: Vec<&str> = lines
                .by_ref()
                .map(|(_, inside)| inside)
                .take_while(|inside| !inside.trim_start().starts_with("```"))
                .collect();
            steps.push(Step::Block(Block {
                line,
                language: language.to_owned(),
                text: inside.join("\n") + "\n",
                not_run: not_run.take(),
                file: file.take(),
            }));
        } else if !said.is_empty() {
            assert!(
                not_run.is_none() && file.is_none(),
                "{name}:{line}: a comment about a block has to stand right before it"
            );
        }
    }
    steps
}
