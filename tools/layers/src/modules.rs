//! Which top-level modules of a crate use which, read from its source. What is built for tests only is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Each top-level module with those that it uses, and a file that does so. The root of the crate is `crate`.
pub(super) type Graph = BTreeMap<String, BTreeMap<String, PathBuf>>;

const ROOT: &str = "crate";

/// Reads the modules of the crate whose sources are in `src`.
pub(super) fn graph(src: &Path) -> Result<Graph, String> {
    let root_file = src.join("lib.rs");
    let root_file = if root_file.is_file() {
        root_file
    } else {
        src.join("main.rs")
    };
    let tokens = read(&root_file)?;
    let mut crate_root = Root::default();
    crate_root.read(&tokens);
    let mut graph = Graph::new();
    for name in &crate_root.modules {
        let mut used = BTreeMap::new();
        let file = file_of(src, name)?;
        collect(&file, &src.join(name), 1, &mut |path| {
            let module = crate_root.module_of(path);
            if module != *name {
                used.entry(module)
                    .or_insert_with(|| file_name(path.file, src));
            }
        })?;
        graph.insert(name.clone(), used);
    }
    let uses_all = crate_root
        .modules
        .iter()
        .filter(|name| crate_root.own_uses.contains(*name));
    let used = uses_all
        .map(|name| (name.clone(), file_name(&root_file, src)))
        .collect();
    graph.insert(ROOT.to_owned(), used);
    Ok(graph)
}

/// What the root of a crate declares.
#[derive(Default)]
struct Root {
    modules: BTreeSet<String>,
    /// Names at the root that are an item of a module: `pub use limit::Limit`.
    exports: BTreeMap<String, String>,
    /// Modules that items of the root itself use.
    own_uses: BTreeSet<String>,
}

/// A path from the root of a crate: its first name.
struct Used<'a> {
    first: &'a str,
    file: &'a Path,
}

impl Root {
    fn read(&mut self, tokens: &TokenStream) {
        let items = without_tests(tokens);
        for window in items.windows(3) {
            if let [TokenTree::Ident(keyword), TokenTree::Ident(name), end] = window
                && keyword == "mod"
                && is_punct(end, ';')
            {
                self.modules.insert(name.to_string());
            }
        }
        let mut rest = items.as_slice();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                TokenTree::Ident(keyword) if keyword == "use" => {
                    let end = after.iter().position(|token| is_punct(token, ';'));
                    let (path, after) = after.split_at(end.unwrap_or(after.len()));
                    rest = after;
                    self.export(path);
                }
                TokenTree::Group(group) => self.uses_in(&group.stream()),
                _ => {}
            }
        }
    }

    /// `limit::{Limit, Rate as R}` makes `Limit` and `R` names of `limit`.
    fn export(&mut self, path: &[TokenTree]) {
        let mut path = path;
        if let [TokenTree::Ident(own), colon, other, rest @ ..] = path
            && (own == "crate" || own == "self")
            && is_punct(colon, ':')
            && is_punct(other, ':')
        {
            path = rest;
        }
        let Some(TokenTree::Ident(module)) = path.first() else {
            return;
        };
        let module = module.to_string();
        if !self.modules.contains(&module) {
            return;
        }
        let mut names = Vec::new();
        idents(path, &mut names);
        for name in names {
            if name != module {
                self.exports.insert(name, module.clone());
            }
        }
    }

    fn uses_in(&mut self, tokens: &TokenStream) {
        let mut names = Vec::new();
        idents(&tokens.clone().into_iter().collect::<Vec<_>>(), &mut names);
        self.own_uses.extend(names);
    }

    fn module_of(&self, path: &Used<'_>) -> String {
        if self.modules.contains(path.first) {
            return path.first.to_owned();
        }
        // What is no export is an item of the root itself.
        self.exports
            .get(path.first)
            .map_or(ROOT, String::as_str)
            .to_owned()
    }
}

fn idents(tokens: &[TokenTree], names: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => {
                idents(&group.stream().into_iter().collect::<Vec<_>>(), names);
            }
            _ => {}
        }
    }
}

/// Reports each path from the root that a file and the files of its submodules use. `depth` is how many modules lie
/// between the file and the root, `folder` where the files of its submodules are.
fn collect(
    file: &Path,
    folder: &Path,
    depth: usize,
    report: &mut impl FnMut(&Used<'_>),
) -> Result<(), String> {
    let tokens = without_tests(&read(file)?);
    walk(&tokens, file, folder, depth, report)
}

fn walk(
    tokens: &[TokenTree],
    file: &Path,
    folder: &Path,
    depth: usize,
    report: &mut impl FnMut(&Used<'_>),
) -> Result<(), String> {
    for (at, token) in tokens.iter().enumerate() {
        let rest = tokens.get(at + 1..).unwrap_or_default();
        match (token, rest) {
            (TokenTree::Ident(keyword), [TokenTree::Ident(name), end, ..]) if keyword == "mod" => {
                let name = name.to_string();
                if is_punct(end, ';') {
                    collect(
                        &file_of(folder, &name)?,
                        &folder.join(&name),
                        depth + 1,
                        report,
                    )?;
                }
            }
            (TokenTree::Ident(start), _) if start == "crate" => {
                first_names(rest, &mut |first| report(&Used { first, file }));
            }
            (TokenTree::Ident(start), _) if start == "super" && !is_continued(tokens, at) => {
                let (supers, rest) = leading_supers(rest);
                if supers + 1 == depth {
                    first_names(rest, &mut |first| report(&Used { first, file }));
                }
            }
            (TokenTree::Group(group), _) => {
                let inner = without_tests(&group.stream());
                let is_module =
                    is_inline_module(tokens, at) && group.delimiter() == Delimiter::Brace;
                walk(&inner, file, folder, depth + usize::from(is_module), report)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a path goes on here that began before: the second `super` of `super::super`.
fn is_continued(tokens: &[TokenTree], at: usize) -> bool {
    at.checked_sub(1)
        .and_then(|before| tokens.get(before))
        .is_some_and(|token| is_punct(token, ':'))
}

fn is_inline_module(tokens: &[TokenTree], at: usize) -> bool {
    matches!(
        at.checked_sub(2).and_then(|start| tokens.get(start..at)),
        Some([TokenTree::Ident(keyword), TokenTree::Ident(_)]) if keyword == "mod"
    )
}

/// How many `::super` follow, and what comes after them.
fn leading_supers(mut rest: &[TokenTree]) -> (usize, &[TokenTree]) {
    let mut count = 0;
    while let [one, other, TokenTree::Ident(name), after @ ..] = rest
        && is_punct(one, ':')
        && is_punct(other, ':')
        && name == "super"
    {
        (count, rest) = (count + 1, after);
    }
    (count, rest)
}

/// The names that follow `::`: one, or those at the beginning of each branch of `{…}`.
fn first_names(rest: &[TokenTree], report: &mut impl FnMut(&str)) {
    let [one, other, next, ..] = rest else { return };
    if !is_punct(one, ':') || !is_punct(other, ':') {
        return;
    }
    match next {
        TokenTree::Ident(name) => report(&name.to_string()),
        TokenTree::Group(group) => {
            let mut is_first = true;
            for token in group.stream() {
                match &token {
                    TokenTree::Ident(name) if is_first => report(&name.to_string()),
                    _ => {}
                }
                is_first = is_punct(&token, ',');
            }
        }
        _ => {}
    }
}

/// All tokens but those of items behind `#[cfg(test)]`.
fn without_tests(tokens: &TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        if is_punct(&token, '#')
            && let Some(TokenTree::Group(attribute)) = tokens.peek()
            && is_for_tests(&attribute.stream())
        {
            // Up to the end of the item that it belongs to.
            tokens.next();
            while let Some(token) = tokens.next() {
                let is_body = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                // `use a::{b};` goes on behind its braces.
                if is_punct(&token, ';')
                    || is_body && !tokens.peek().is_some_and(|next| is_punct(next, ';'))
                {
                    break;
                }
            }
            continue;
        }
        kept.push(token);
    }
    kept
}

/// `cfg(test)`, `cfg(all(test, …))`.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let mut names = Vec::new();
    idents(
        &attribute.clone().into_iter().collect::<Vec<_>>(),
        &mut names,
    );
    names.first().is_some_and(|name| name == "cfg")
        && names.iter().any(|name| name == "test")
        && !names.iter().any(|name| name == "not" || name == "any")
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn file_of(folder: &Path, module: &str) -> Result<PathBuf, String> {
    let files = [
        folder.join(format!("{module}.rs")),
        folder.join(module).join("mod.rs"),
    ];
    let found = files.iter().find(|file| file.is_file()).cloned();
    found.ok_or_else(|| format!("{}: there is no file for this module", files[0].display()))
}

fn file_name(file: &Path, src: &Path) -> PathBuf {
    Path::new("src").join(file.strip_prefix(src).unwrap_or(file))
}

fn read(file: &Path) -> Result<TokenStream, String> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    text.parse()
        .map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle;

    /// The cycle in a crate of these files.
    fn cycle_in(files: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        cycle::find(&graph(folder.path()).unwrap())
    }

    #[test]
    fn modules_in_one_direction_form_no_cycle() {
        let none = cycle_in(&[
            ("lib.rs", "mod a; mod b; pub use b::Thing;"),
            ("a.rs", "use crate::Thing; fn f() { crate::b::g() }"),
            (
                "b.rs",
                "pub struct Thing; #[cfg(test)] mod tests { use crate::a; }",
            ),
        ]);
        assert_eq!(none, None);
    }

    #[test]
    fn each_way_to_name_a_module_is_found() {
        for uses_a in [
            "use crate::a;",
            "use crate::{a::{self, f}};",
            "use crate::{c, a};",
            "fn g() { crate::a::f() }",
            "macro_rules! m { () => { $crate::a::f() } }",
            "pin! { struct S { field: crate::a::F } }",
            "use super::a::f;",
            "mod inner { use super::super::a; }",
            "use crate::FromA;",
        ] {
            let cycle = cycle_in(&[
                ("lib.rs", "mod a; mod b; mod c; pub use a::{F as FromA};"),
                ("a.rs", "use crate::b;"),
                ("b.rs", uses_a),
                ("c.rs", ""),
            ]);
            let cycle = cycle.unwrap_or_else(|| panic!("{uses_a}"));
            assert!(cycle.contains("a uses b in src/a.rs"), "{cycle}");
            assert!(cycle.contains("b uses a in src/b.rs"), "{cycle}");
        }
    }

    #[test]
    fn submodules_belong_to_their_top_level_module() {
        let files = |deep: &'static str| {
            [
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a.rs", "use crate::b::f;"),
                ("b.rs", "mod deep;"),
                ("b/deep.rs", "use crate::c::f;"),
                ("c.rs", deep),
            ]
        };
        assert_eq!(cycle_in(&files("mod inner { use super::f; }")), None);
        let cycle = cycle_in(&files("fn f() { crate::a::f() }")).unwrap();
        assert!(cycle.contains("b uses c in src/b/deep.rs"), "{cycle}");
    }
}
