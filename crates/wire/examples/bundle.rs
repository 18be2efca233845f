//! Bundles the app in a directory, as `flwr build` does, and prints the hash: `bundle DIRECTORY [FILE]`.

use std::error::Error;
use std::path::Path;

use trellis_wire::fab::App;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().ok_or("name the directory of an app")?;
    let fab = App::read(Path::new(&directory))?.bundle()?.fab;
    if let Some(file) = arguments.next() {
        std::fs::write(file, &fab.content)?;
    }
    println!("{}", fab.hash_str);
    Ok(())
}
