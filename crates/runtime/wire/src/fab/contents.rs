//! Selects the files of a bundle by the rules of `flwr build` since 1.28: fixed lists here, and the app's `.gitignore`,
//! `fab-include` and `fab-exclude`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use toml::{Table, Value};

use super::pattern::Patterns;
use super::{BadFab, PYPROJECT, bad, find};

const KINDS: &[&str] =
    &["**/*.py", "**/*.toml", "**/*.md", "**/*.yaml", "**/*.yml", "**/*.json", "**/*.jsonl", "/LICENSE"];
/// `pyproject.toml` itself is generated.
const NEVER: &[&str] = &[
    ".flwr/**",
    "**/__pycache__/**",
    PYPROJECT,
    "**/*_test.py",
    "**/test_*.py",
    "build/**",
    "eggs/**",
    ".eggs/**",
    "lib/**",
    "lib64/**",
    "parts/**",
    "*.egg",
    ".venv/**",
    "env/**",
    "venv/**",
    "ENV/**",
    "env.bak/**",
    "venv.bak/**",
];
/// Directories at the root of an app that are not read: they may be large.
const NOT_ENTERED: &[&str] = &[".flwr/", ".venv/", ".git/"];
/// Maximum nesting of directories.
const MAX_DEPTH: usize = 10;

/// The selected files: path in the bundle to path on disk.
pub type Chosen = BTreeMap<String, PathBuf>;

/// Selects files below a directory.
pub fn choose(directory: &Path, project: &Table) -> Result<Chosen, BadFab> {
    let mut found = Chosen::new();
    let unreadable = |error| bad(format!("{} cannot be read: {error}", directory.display()));
    collect(directory, "", &mut found).map_err(unreadable)?;
    let ignored = match found.get(".gitignore").map(fs::read) {
        Some(content) => Patterns::of_file(&content.map_err(unreadable)?),
        None => Patterns::default(),
    };
    if ignored.has(PYPROJECT) {
        return Err(bad(format!("its .gitignore leaves out {PYPROJECT}")));
    }
    let (kinds, never) = (Patterns::new(KINDS.iter().copied()), Patterns::new(NEVER.iter().copied()));
    found.retain(|path, _| kinds.has(path) && !ignored.has(path));
    if let Some(path) = found.keys().find(|path| path.matches('/').count() > MAX_DEPTH) {
        return Err(bad(format!("{path} is more than {MAX_DEPTH} directories deep")));
    }
    for wish in [Filter::Include, Filter::Exclude] {
        wish.apply(project, &mut found)?;
    }
    found.retain(|path, _| !never.has(path));
    Ok(found)
}

/// Collects all files below a directory. Skips symbolic links: they may lead anywhere.
fn collect(directory: &Path, prefix: &str, found: &mut Chosen) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A name that is not UTF-8 matches no pattern.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let prefix = format!("{path}/");
            if !NOT_ENTERED.contains(&prefix.as_str()) {
                collect(&entry.path(), &prefix, found)?;
            }
        } else if kind.is_file() {
            found.insert(path, entry.path());
        }
    }
    Ok(())
}

/// The app's own file filters in `[tool.flwr.app]`.
#[derive(Clone, Copy, PartialEq)]
enum Filter {
    Include,
    Exclude,
}

impl Filter {
    fn apply(self, project: &Table, found: &mut Chosen) -> Result<(), BadFab> {
        let key = if self == Filter::Include { "fab-include" } else { "fab-exclude" };
        let wrong = |what: &str| bad(format!("{key} in [tool.flwr.app] {what}"));
        let patterns: Vec<&str> = match find(project, &format!("tool.flwr.app.{key}")) {
            None => return Ok(()),
            Some(Value::Array(items)) if !items.is_empty() => {
                let texts = items.iter().map(|item| item.as_str().filter(|text| !text.trim().is_empty()));
                texts.collect::<Option<_>>().ok_or_else(|| wrong("has an entry that is no pattern"))?
            }
            Some(_) => return Err(wrong("must be a list with at least one pattern")),
        };
        // A pattern that matches no file is a mistake: a typo, or a file type that bundles cannot contain.
        let alone = |pattern: &&&str| !found.keys().any(|path| Patterns::new([**pattern]).has(path));
        if let Some(pattern) = patterns.iter().find(alone) {
            return Err(wrong(&format!("has {pattern:?}, which matches no file that a bundle takes")));
        }
        let patterns = Patterns::new(patterns);
        found.retain(|path, _| patterns.has(path) == (self == Filter::Include));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(files: &[(&str, &str)], app: &str) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(directory.path().join("a.py"), directory.path().join("link.py")).unwrap();
        let project = format!("[tool.flwr.app]\n{app}").parse().unwrap();
        let chosen = choose(directory.path(), &project).map_err(|problem| problem.0)?;
        Ok(chosen.into_keys().collect())
    }

    const FILES: &[(&str, &str)] = &[
        (".gitignore", "secret/\n*.json\n!keep.json\n"),
        ("LICENSE", ""),
        ("pyproject.toml", ""),
        ("README.md", ""),
        ("a.json", ""),
        ("keep.json", ""),
        ("data.csv", ""),
        ("a.py", ""),
        ("app/client.py", ""),
        ("app/__pycache__/client.py", ""),
        ("app/test_client.py", ""),
        ("build/a.py", ""),
        ("secret/a.py", ""),
        (".venv/a.py", ""),
    ];

    #[test]
    fn a_bundle_has_the_files_of_the_app() {
        let all = ["LICENSE", "README.md", "a.py", "app/client.py", "keep.json"];
        assert_eq!(chosen(FILES, "").unwrap(), all);
        assert_eq!(chosen(FILES, "fab-include = ['app/**', '*.md']").unwrap(), ["README.md", "app/client.py"]);
        assert_eq!(
            chosen(FILES, "fab-exclude = ['/*.py', '*.md']").unwrap(),
            ["LICENSE", "app/client.py", "keep.json"]
        );
    }

    #[test]
    fn invalid_filters_are_refused() {
        for (app, expected) in [
            ("fab-include = []", "must be a list with at least one pattern"),
            ("fab-exclude = 'a'", "must be a list with at least one pattern"),
            ("fab-exclude = [1]", "has an entry that is no pattern"),
            ("fab-include = ['*.csv']", "has \"*.csv\", which matches no file that a bundle takes"),
        ] {
            let problem = chosen(FILES, app).unwrap_err();
            assert!(problem.ends_with(expected), "{problem}");
        }
        let deep = format!("{}x.py", "d/".repeat(11));
        assert!(chosen(&[(&deep, "")], "").unwrap_err().ends_with("more than 10 directories deep"));
        assert!(chosen(&[(".gitignore", "*.toml")], "").unwrap_err().contains("leaves out pyproject.toml"));
    }
}
