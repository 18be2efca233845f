//! `.gitignore` patterns as Flower reads them: `*`, `?`, `[a-z]`, `**`, `dir/`, `!again`. The last matching pattern
//! decides. Paths are relative, with `/` as separator.

/// Ordered patterns.
#[derive(Debug, Default)]
pub struct Patterns(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    /// Starts with `!`: negates an earlier match.
    negated: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq)]
enum Segment {
    /// `**`: any number of directories.
    Any,
    Glob(Vec<Glyph>),
}

/// An element of a name pattern.
#[derive(Debug, Clone, PartialEq)]
enum Glyph {
    Exactly(char),
    One,
    Many,
    Of { negated: bool, ranges: Vec<(char, char)> },
}

impl Patterns {
    pub fn new<'a>(lines: impl IntoIterator<Item = &'a str>) -> Patterns {
        Patterns(lines.into_iter().filter_map(Pattern::parse).collect())
    }

    /// Parses a `.gitignore` file. A file that is not UTF-8 has no patterns.
    pub fn of_file(content: &[u8]) -> Patterns {
        Patterns::new(str::from_utf8(content).unwrap_or_default().lines().map(str::trim))
    }

    pub fn has(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let decides = self.0.iter().rev().find(|pattern| matches(&pattern.segments, &parts));
        decides.is_some_and(|pattern| !pattern.negated)
    }
}

impl Pattern {
    /// Parses a line. Returns `None` for an empty line, a comment, or an invalid pattern, which git ignores too.
    fn parse(line: &str) -> Option<Pattern> {
        let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
        if line.is_empty() || line.starts_with('#') || line == "/" {
            return None;
        }
        let (negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (body, directory) = line.strip_suffix('/').map_or((line, false), |body| (body, true));
        // A slash at the start or in the middle anchors a pattern at the root.
        let anchored = body.contains('/');
        let names = body.strip_prefix('/').unwrap_or(body).split('/');
        let mut segments: Vec<Segment> = Vec::new();
        if !anchored {
            segments.push(Segment::Any);
        }
        for name in names {
            segments.push(if name == "**" { Segment::Any } else { Segment::Glob(glob(name)?) });
        }
        if directory {
            // Matches only paths below a directory. `**/` is any directory.
            if segments.iter().all(|segment| *segment == Segment::Any) {
                segments.push(Segment::Glob(vec![Glyph::Many]));
            }
            segments.push(Segment::Any);
        }
        segments.dedup_by(|next, last| (&*next, &*last) == (&Segment::Any, &Segment::Any));
        Some(Pattern { negated, segments })
    }
}

/// Returns whether the pattern matches the path or one of its parents.
fn matches(pattern: &[Segment], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => true,
        Some((Segment::Any, [])) => !path.is_empty(),
        Some((Segment::Any, rest)) => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
        Some((Segment::Glob(glob), rest)) => path.split_first().is_some_and(|(name, below)| {
            let name: Vec<char> = name.chars().collect();
            fits(glob, &name) && matches(rest, below)
        }),
    }
}

fn fits(glob: &[Glyph], name: &[char]) -> bool {
    match glob.split_first() {
        None => name.is_empty(),
        Some((Glyph::Many, rest)) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        Some((glyph, rest)) => name.split_first().is_some_and(|(first, others)| glyph.is(*first) && fits(rest, others)),
    }
}

impl Glyph {
    fn is(&self, char: char) -> bool {
        match self {
            Glyph::Exactly(expected) => *expected == char,
            Glyph::One | Glyph::Many => true,
            Glyph::Of { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&char)) != *negated
            }
        }
    }
}

/// Parses a name pattern. Returns `None` for an unclosed bracket or a trailing backslash.
fn glob(name: &str) -> Option<Vec<Glyph>> {
    let chars: Vec<char> = name.chars().collect();
    let mut glyphs = Vec::new();
    let mut rest = chars.as_slice();
    while let Some((char, after)) = rest.split_first() {
        rest = after;
        glyphs.push(match char {
            // Merge repeated stars: each would be tried at every position.
            '*' if glyphs.last() == Some(&Glyph::Many) => continue,
            '*' => Glyph::Many,
            '?' => Glyph::One,
            '\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                Glyph::Exactly(*escaped)
            }
            '[' => {
                let negated = matches!(rest.first(), Some('!' | '^'));
                let inside = &rest[usize::from(negated)..];
                // A `]` right after the bracket is a member.
                let end = 1 + inside.iter().skip(1).position(|char| *char == ']')?;
                rest = &inside[end + 1..];
                Glyph::Of { negated, ranges: ranges(&inside[..end]) }
            }
            char => Glyph::Exactly(*char),
        });
    }
    Some(glyphs)
}

fn ranges(mut members: &[char]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    while let Some((first, after)) = members.split_first() {
        match after {
            ['-', last, others @ ..] => {
                ranges.push((*first, *last));
                members = others;
            }
            others => {
                ranges.push((*first, *first));
                members = others;
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_git() {
        for (pattern, yes, no) in [
            ("*.py", &["a.py", "b/c/a.py", "a.py/below"][..], &["a.pyc", "py"][..]),
            ("**/*.md", &["README.md", "docs/a.md"], &["md"]),
            ("/LICENSE", &["LICENSE"], &["docs/LICENSE"]),
            ("build/**", &["build/a", "build/a/b"], &["build", "src/build/a"]),
            ("data/", &["data/x", "a/data/x"], &["data", "a/data"]),
            ("a/b", &["a/b", "a/b/c"], &["x/a/b"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b/c"], &["a/x", "b"]),
            ("test_?.p[xy]", &["test_1.py", "d/test_a.px"], &["test_.py", "test_11.py", "test_1.pz"]),
            ("[!a-c]x", &["dx"], &["ax", "bx", "cx", "x"]),
            ("[]x]", &["]", "x"], &["y"]),
            ("\\!a", &["!a"], &["a"]),
            ("\\*", &["*"], &["a"]),
            ("**", &["a", "a/b"], &[]),
            ("**/", &["a/b"], &["a"]),
            ("*/", &["a/b"], &["a"]),
            ("*", &["a", "a/b"], &[]),
        ] {
            let patterns = Patterns::new([pattern]);
            yes.iter().for_each(|path| assert!(patterns.has(path), "{pattern} matches {path}"));
            no.iter().for_each(|path| assert!(!patterns.has(path), "{pattern} does not match {path}"));
        }
    }

    #[test]
    fn the_last_match_decides() {
        let patterns = Patterns::of_file(b"# data\n*.json\n\n!keep.json\n /tmp/ \n!\n[oops\n");
        assert!(patterns.has("a.json") && patterns.has("d/a.json") && patterns.has("tmp/x"));
        assert!(!patterns.has("keep.json") && !patterns.has("d/keep.json") && !patterns.has("[oops"));
    }

    #[test]
    fn a_file_that_is_not_utf8_has_no_patterns() {
        assert!(!Patterns::of_file(b"\xff*\n").has("a"));
    }
}
