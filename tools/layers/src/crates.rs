//! Which crates there are, and which of them may depend on which.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each published crate with the crates of this workspace that it may depend on, lowest layer first.
const MAY_DEPEND_ON: [(&str, &[&str]); 6] = [
    ("tollgate", &[]),
    ("tollgate-http", &[]),
    ("tollgate-tower", &["tollgate"]),
    ("tollgate-simulate", &["tollgate"]),
    (
        "tollgate-config",
        &["tollgate", "tollgate-tower", "tollgate-http"],
    ),
    (
        "tollgate-server",
        &[
            "tollgate",
            "tollgate-tower",
            "tollgate-http",
            "tollgate-config",
            "tollgate-simulate",
        ],
    ),
];

/// A crate in `crates/`.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// Test kits are not. They may depend on all others.
    is_published: bool,
    /// Other crates of the workspace that it is built with; those for its tests left out.
    dependencies: Vec<String>,
}

/// The crates in `crates/`.
pub(super) fn find(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata cannot be run: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata did not print JSON: {error}"))?;
    let all = metadata["packages"].as_array().into_iter().flatten();
    let mut found: Vec<Package> = all.filter_map(package).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    match found.is_empty() {
        true => Err("there is no crate in crates/".to_owned()),
        false => Ok(found),
    }
}

fn package(package: &Value) -> Option<Package> {
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
    if folder.parent()?.file_name()? != "crates" {
        return None;
    }
    let dependencies = package["dependencies"].as_array()?.iter();
    let is_ours =
        |dependency: &&Value| dependency["path"].is_string() && dependency["kind"].is_null();
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder: folder.to_owned(),
        // An empty list of registries is `publish = false`.
        is_published: package["publish"].is_null(),
        dependencies: dependencies
            .filter(is_ours)
            .filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
            .collect(),
    })
}

/// What depends on something that it must not know.
pub(super) fn violations(crates: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, allowed) in MAY_DEPEND_ON {
        let Some(package) = crates.iter().find(|package| package.name == name) else {
            violations.push(format!("{name}: there is no such crate in crates/"));
            continue;
        };
        let forbidden =
            (package.dependencies.iter()).filter(|one| !allowed.contains(&one.as_str()));
        violations.extend(forbidden.map(|one| format!("{name} must not depend on {one}")));
    }
    let is_listed = |name: &str| MAY_DEPEND_ON.iter().any(|(listed, _)| *listed == name);
    let unlisted =
        (crates.iter()).filter(|package| package.is_published && !is_listed(&package.name));
    violations.extend(unlisted.map(|package| {
        format!(
            "{}: add it to MAY_DEPEND_ON in tools/layers/src/crates.rs, with the crates that it may depend on",
            package.name
        )
    }));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_on_a_higher_layer_is_a_violation() {
        let package = |name: &str, dependencies: &[&str]| Package {
            name: name.to_owned(),
            folder: PathBuf::new(),
            is_published: true,
            dependencies: dependencies.iter().map(|one| (*one).to_owned()).collect(),
        };
        let mut crates: Vec<Package> = (MAY_DEPEND_ON.iter())
            .map(|(name, allowed)| package(name, allowed))
            .collect();
        assert_eq!(violations(&crates), Vec::<String>::new());
        crates[0] = package("tollgate", &["tollgate-tower"]);
        assert_eq!(
            violations(&crates),
            ["tollgate must not depend on tollgate-tower"]
        );
        crates.remove(0);
        assert_eq!(
            violations(&crates),
            ["tollgate: there is no such crate in crates/"]
        );
        crates.push(package("tollgate", &[]));
        crates.push(package("tollgate-new", &[]));
        let [violation] = &violations(&crates)[..] else {
            panic!("one violation")
        };
        assert!(violation.starts_with("tollgate-new: add it"), "{violation}");
    }
}
