//! Which top-level modules of a crate use which, read from its source. What is built for tests only is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::paths;

/// Each top-level module with those that it uses, and a file that does so. The root of the crate is `crate`.
pub(super) type Graph = BTreeMap<String, BTreeMap<String, PathBuf>>;

const ROOT: &str = "crate";

/// How many imports a name may be passed on by.
const MAX_IMPORTS: u8 = 8;

/// Reads the modules of each crate whose sources are in `src`: a library, and a program beside it.
pub(super) fn graphs(src: &Path) -> Result<Vec<Graph>, String> {
    let roots = [src.join("lib.rs"), src.join("main.rs")];
    let roots = roots.iter().filter(|root| root.is_file());
    roots.map(|root| graph(src, root)).collect()
}

fn graph(src: &Path, root: &Path) -> Result<Graph, String> {
    let mut modules = Modules::default();
    let tokens = paths::without_tests(&read(root)?);
    modules.read(Vec::new(), root, src, &tokens)?;
    let mut graph = Graph::new();
    for (path, module) in &modules.0 {
        let own = path.first().map_or(ROOT, String::as_str);
        let used = graph.entry(own.to_owned()).or_default();
        for names in &module.uses {
            if let Some(other) = modules.top_level_of(path, names)
                && other != own
            {
                let file = module.file.strip_prefix(src).unwrap_or(&module.file);
                used.entry(other)
                    .or_insert_with(|| Path::new("src").join(file));
            }
        }
    }
    Ok(graph)
}

/// Each module of a crate by its path. The root has an empty one.
#[derive(Default)]
struct Modules(BTreeMap<Vec<String>, Module>);

#[derive(Default)]
struct Module {
    file: PathBuf,
    submodules: BTreeSet<String>,
    /// Names of functions, types and others that it declares.
    items: BTreeSet<String>,
    /// Names that `use` brings, each with the path that it stands for.
    imports: BTreeMap<String, Vec<String>>,
    /// The path of each `use a::*`.
    globs: Vec<Vec<String>>,
    /// Paths that it uses. Imports of the root are none: it hands them on to those that name them.
    uses: Vec<Vec<String>>,
}

impl Modules {
    /// Reads a module and its submodules, whose files are in `folder`.
    fn read(
        &mut self,
        path: Vec<String>,
        file: &Path,
        folder: &Path,
        tokens: &[TokenTree],
    ) -> Result<(), String> {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut inner = Vec::new();
        module.read(tokens, path.is_empty(), true, &mut inner);
        for (name, body) in inner {
            let (path, folder) = (
                [&*path, std::slice::from_ref(&name)].concat(),
                folder.join(&name),
            );
            match body {
                Some(tokens) => self.read(path, file, &folder, &tokens)?,
                None => {
                    let file = file_of(&folder)?;
                    let tokens = paths::without_tests(&read(&file)?);
                    self.read(path, &file, &folder, &tokens)?;
                }
            }
            module.submodules.insert(name);
        }
        self.0.insert(path, module);
        Ok(())
    }

    /// The top-level module that has what a path in the module `within` names. `None` is another crate, or no item.
    fn top_level_of(&self, within: &[String], names: &[String]) -> Option<String> {
        let mut names = self.absolute(within, names, MAX_IMPORTS)?;
        let root = self.0.get(&Vec::new())?;
        // Names at the root that it imports belong to the module that declares them.
        for _ in 0..MAX_IMPORTS {
            let first = names.first().filter(|first| *first != "*")?;
            if root.submodules.contains(first) {
                return Some(first.clone());
            }
            if root.items.contains(first) {
                break;
            }
            names = match root.imports.get(first) {
                Some(import) => self.absolute(&[], import, MAX_IMPORTS)?,
                None => match self.glob_with(&[], first, MAX_IMPORTS) {
                    Some(module) => module,
                    None => break,
                },
            };
        }
        Some(ROOT.to_owned())
    }

    /// A path in the module `within` as one from the root. `imports` is how many imports it may go through.
    fn absolute(&self, within: &[String], names: &[String], imports: u8) -> Option<Vec<String>> {
        let (first, rest) = names.split_first()?;
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some([within, rest].concat()),
            "super" => {
                let (_, parent) = within.split_last()?;
                return match rest.first().is_some_and(|name| name == "super") {
                    true => self.absolute(parent, rest, imports),
                    false => Some([parent, rest].concat()),
                };
            }
            _ => {}
        }
        let imports = imports.checked_sub(1)?;
        let module = self.0.get(within)?;
        // A lone name is no module, but a variable or a field of that name.
        if module.submodules.contains(first) && !rest.is_empty() || module.items.contains(first) {
            return Some([within, names].concat());
        }
        if let Some(import) = module.imports.get(first) {
            return self.absolute(within, &[import, rest].concat(), imports);
        }
        let module = self.glob_with(within, first, imports)?;
        Some([&*module, names].concat())
    }

    /// The module whose names `use a::*` in the module `within` brings, and that has this one.
    fn glob_with(&self, within: &[String], name: &String, imports: u8) -> Option<Vec<String>> {
        let imports = imports.checked_sub(1)?;
        let mut globs = self.0.get(within)?.globs.iter();
        globs.find_map(|glob| {
            let (_, path) = glob.split_last()?;
            // `a` in `use a::*` is a module, though it stands alone.
            let mut path = self.absolute(
                within,
                &[path, std::slice::from_ref(name)].concat(),
                imports,
            )?;
            path.pop();
            let module = self.0.get(&path)?;
            let has_it = module.items.contains(name)
                || module.submodules.contains(name)
                || module.imports.contains_key(name)
                || self.glob_with(&path, name, imports).is_some();
            has_it.then_some(path)
        })
    }
}

impl Module {
    /// Reads tokens of the module, and notes the modules in it with their tokens, if those are in the same file.
    fn read(
        &mut self,
        tokens: &[TokenTree],
        is_root: bool,
        is_outermost: bool,
        inner: &mut Vec<(String, Option<Vec<TokenTree>>)>,
    ) {
        let mut rest = tokens;
        while let Some((token, after)) = rest.split_first() {
            let before = tokens.get(..tokens.len() - rest.len()).unwrap_or_default();
            rest = after;
            match (token, after) {
                (TokenTree::Ident(keyword), [TokenTree::Ident(name), body, after @ ..])
                    if keyword == "mod" =>
                {
                    let body = match body {
                        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                            Some(paths::without_tests(&group.stream()))
                        }
                        _ => None,
                    };
                    inner.push((name.to_string(), body));
                    rest = after;
                }
                // `impl Trait + use<'a>` imports nothing.
                (TokenTree::Ident(keyword), [next, ..])
                    if keyword == "use" && !paths::is_punct(next, '<') =>
                {
                    let imported;
                    (imported, rest) = paths::imports(after);
                    for path in imported {
                        self.import(path, is_root && is_outermost);
                    }
                }
                (TokenTree::Ident(_), _) if !paths::is_continued(before) => {
                    if let ([.., TokenTree::Ident(keyword)], true) = (before, is_outermost)
                        && declares(&keyword.to_string())
                    {
                        self.items.insert(token.to_string());
                    }
                    let found;
                    (found, rest) = paths::path(tokens.get(before.len()..).unwrap_or_default());
                    self.uses.extend(found.into_iter().map(|path| path.names));
                }
                (TokenTree::Group(group), _) => {
                    let tokens = paths::without_tests(&group.stream());
                    self.read(&tokens, is_root, false, inner);
                }
                _ => {}
            }
        }
    }

    fn import(&mut self, path: paths::Path, is_handed_on: bool) {
        if path.imported_as() == "*" {
            self.globs.push(path.names.clone());
        } else {
            let name = path.imported_as().to_owned();
            self.imports.insert(name, path.names.clone());
        }
        if !is_handed_on {
            self.uses.push(path.names);
        }
    }
}

/// Whether the name of an item follows this keyword.
fn declares(keyword: &str) -> bool {
    [
        "fn", "struct", "enum", "union", "trait", "type", "const", "static",
    ]
    .contains(&keyword)
}

fn file_of(module: &Path) -> Result<PathBuf, String> {
    let files = [module.with_extension("rs"), module.join("mod.rs")];
    let found = files.iter().find(|file| file.is_file()).cloned();
    found.ok_or_else(|| format!("{}: there is no file for this module", files[0].display()))
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

    /// The cycles in the crates of these files.
    fn cycles_in(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let graphs = graphs(folder.path()).unwrap();
        graphs.iter().flat_map(cycle::find).collect()
    }

    /// Fails unless the modules `a` and `b` use each other, in these files, and form the only cycle.
    fn assert_cycle_of_a_and_b(files: &[(&str, &str)]) {
        let cycles = cycles_in(files);
        let [cycle] = &*cycles else {
            panic!("{files:?}: {cycles:?}")
        };
        assert!(cycle.contains("a uses b in src/a.rs"), "{cycle}");
        assert!(cycle.contains("b uses a in src/b"), "{cycle}");
    }

    #[test]
    fn modules_in_one_direction_form_no_cycle() {
        let none = cycles_in(&[
            ("lib.rs", "mod a; mod b; pub use b::Thing; pub use a::*;"),
            (
                "a.rs",
                "use crate::Thing; pub fn f(b: T) { crate::b::g(); b.a }",
            ),
            (
                "b.rs",
                "pub struct Thing { a: T } #[cfg(test)] mod tests { use crate::a; } fn f<'a>() {}",
            ),
        ]);
        assert_eq!(none, Vec::<String>::new());
    }

    #[test]
    fn each_way_to_name_a_module_is_found() {
        for uses_a in [
            "use crate::a;",
            "use crate::{a::{self, f}};",
            "use crate::{c, a};",
            "use {crate::{a::f as g}};",
            "fn g() { crate::a::f() }",
            "fn g() { use crate::a::f; }",
            "macro_rules! m { () => { $crate::a::f() } }",
            "pin! { struct S { field: crate::a::F } }",
            "use super::a::f;",
            "struct S { field:super::a::F }",
            "mod inner { use super::super::a; }",
            "mod inner { use super::{super::a}; }",
            "mod inner { use super::{self, super::{c, a::f}}; }",
            "use super::*; fn g() { a::f() }",
            "use crate::FromA;",
            "fn g() -> crate::FromA {}",
            "use crate::*; fn g() -> FromA {}",
        ] {
            assert_cycle_of_a_and_b(&[
                ("lib.rs", "mod a; mod b; mod c; pub use a::{F as FromA};"),
                ("a.rs", "use crate::b;"),
                ("b.rs", uses_a),
                ("c.rs", ""),
            ]);
        }
    }

    #[test]
    fn each_way_to_export_at_the_root_is_found() {
        for export in [
            "pub use a::F;",
            "use a::F;",
            "pub use self::a::{F};",
            "pub use crate::a::F;",
            "pub use {a::F};",
            "pub use {c::C, a::{F}};",
            "pub use a::*;",
            "pub use {c::*, a::*};",
            "pub use F2 as F; use a::G as F2;",
        ] {
            assert_cycle_of_a_and_b(&[
                ("lib.rs", &format!("mod a; mod b; mod c; {export}")),
                (
                    "a.rs",
                    "use crate::b; pub struct F; pub use deep::*; mod deep;",
                ),
                ("a/deep.rs", "pub struct G;"),
                ("b.rs", "fn f(f: crate::F) {}"),
                ("c.rs", "pub struct C;"),
            ]);
        }
        assert_cycle_of_a_and_b(&[
            ("lib.rs", "mod a; mod b; pub use a::*;"),
            ("a.rs", "use crate::b; pub use deep::*; mod deep;"),
            ("a/deep.rs", "pub struct G;"),
            ("b.rs", "use crate::G;"),
        ]);
    }

    #[test]
    fn items_of_the_root_use_modules() {
        for uses_a in [
            "use a::F; pub fn f(f: F) {}",
            "use a::F; pub fn f() -> Option<F> {}",
            "pub use a::{F as G}; pub struct S(G);",
            "use a::*; pub type T = F;",
            "pub fn f() { a::f() }",
            "pub fn f() { use a::f; }",
            "impl a::T for S {}",
        ] {
            let cycles = cycles_in(&[
                ("lib.rs", &format!("mod a; {uses_a} pub struct Item;")),
                ("a.rs", "use crate::Item; pub struct F;"),
            ]);
            let [cycle] = &*cycles else {
                panic!("{uses_a}: {cycles:?}")
            };
            assert!(cycle.contains("crate uses a in src/lib.rs"), "{cycle}");
            assert!(cycle.contains("a uses crate in src/a.rs"), "{cycle}");
        }
    }

    #[test]
    fn a_program_beside_a_library_is_read_too() {
        assert_cycle_of_a_and_b(&[
            ("lib.rs", "mod c;"),
            ("c.rs", ""),
            ("main.rs", "mod a; mod b; fn main() { a::f() }"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a;"),
        ]);
    }

    #[test]
    fn all_cycles_are_reported() {
        let cycles = cycles_in(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a; use crate::c;"),
            ("c.rs", "use crate::a;"),
            ("d.rs", "use crate::e;"),
            ("e.rs", "use crate::d;"),
        ]);
        let lines = cycles.iter().map(|cycle| cycle.lines().count() - 1);
        assert_eq!(lines.collect::<Vec<_>>(), [2, 3, 2], "{cycles:?}");
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
        let none = cycles_in(&files("mod inner { use super::f; }"));
        assert_eq!(none, Vec::<String>::new());
        let cycles = cycles_in(&files("fn f() { crate::a::f() }"));
        assert!(
            cycles[0].contains("b uses c in src/b/deep.rs"),
            "{cycles:?}"
        );
    }
}
