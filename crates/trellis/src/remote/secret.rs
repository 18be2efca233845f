//! Input and output of tokens. Tokens come from a file, stdin or the environment, never from an argument: every user of the
//! machine can see arguments. New tokens are printed once, or written to a file that only its owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use trellis_terminal::{Format, print, print_as, remark};
use trellis_wire::token::Token;

use super::error::CommandError;

/// Larger files are not tokens.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// In the place of a file: standard input.
const STDIN: &str = "-";

/// The token in `file`, or else in the environment `variable`. An empty variable counts as unset.
pub fn token_from(file: Option<&Path>, variable: &str) -> Result<Option<Token>, CommandError> {
    let (text, place) = match (file, std::env::var_os(variable)) {
        (Some(file), _) => (read(file)?, file.display().to_string()),
        (None, Some(value)) if !value.is_empty() => (value.to_string_lossy().into_owned(), variable.to_owned()),
        (None, _) => return Ok(None),
    };
    let advice =
        "give what `trellis account add`, `trellis token add` or `trellis node token` printed, and nothing else";
    let no_token = |why| CommandError::usage(format!("there is no token in {place}: {why}"), advice);
    Token::parse(&text).map(Some).map_err(no_token)
}

fn read(file: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let outcome = match file.as_os_str() == STDIN {
        true => io::stdin().take(MAX_FILE_BYTES).read_to_string(&mut text),
        false => File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text)),
    };
    let unreadable = |error| {
        let what = format!("--token-file: {} cannot be read: {error}", file.display());
        CommandError::usage(what, "give the path of a readable file, or - for standard input")
    };
    outcome.map(|_| text).map_err(unreadable)
}

#[derive(Debug, Args)]
pub struct SaveArgs {
    /// Put the new token into this file, which must not exist (mode 0600), instead of showing it
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The destination of a token to be created. Its file is created first, because a token that cannot be saved would be
/// lost, and removed if no token is created.
pub struct NewSecret {
    file: Option<(PathBuf, File)>,
    saved: bool,
}

impl SaveArgs {
    pub fn prepare(&self) -> Result<NewSecret, CommandError> {
        let Some(path) = &self.save else { return Ok(NewSecret { file: None, saved: false }) };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
            let what = format!("--save: {} cannot be created: {error}", path.display());
            CommandError::usage(what, "give the path of a file that does not exist, in a directory that does")
        })?;
        Ok(NewSecret { file: Some((path.clone(), file)), saved: false })
    }
}

impl NewSecret {
    /// Prints or saves the new token. `made` is printed for people, `answer` for programs; a saved token is never printed.
    pub fn save(mut self, format: Format, made: &str, token: &str, answer: &impl Serialize) {
        self.saved = true;
        let written = self.file.as_mut().map(|(path, file)| {
            let done = file.write_all(format!("{token}\n").as_bytes()).and_then(|()| file.sync_all());
            done.map(|()| path.display().to_string())
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))
        });
        // The SuperLink does not show the token again: print it instead.
        if let Some(Err(why)) = &written {
            remark(&format!("{why}; so the token is shown."));
        }
        match (format, written) {
            (Format::Json | Format::Yaml, Some(Ok(path))) => print_as(format, &in_file(answer, path)),
            (Format::Json | Format::Yaml, _) => print_as(format, answer),
            (Format::Table, Some(Ok(path))) => remark(&format!("{made} It was written to {path}.")),
            (Format::Table, _) => {
                remark(&format!("{made} It is not shown again:"));
                print(&format!("{token}\n"));
            }
        }
    }
}

/// The answer with the place of the token instead of the token.
fn in_file(answer: &impl Serialize, path: String) -> serde_json::Value {
    let mut answer = serde_json::to_value(answer).expect("results are plain data");
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("token");
        fields.insert("token_file".to_owned(), path.into());
    }
    answer
}

impl Drop for NewSecret {
    fn drop(&mut self) {
        if let Some((path, _)) = self.file.as_ref().filter(|_| !self.saved) {
            // The file is empty.
            let _ = fs::remove_file(path);
        }
    }
}
