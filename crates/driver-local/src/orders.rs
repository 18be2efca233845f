//! Where it is kept who may still give orders.

use std::io;
use std::path::Path;

use trellis_plan::Orders;

use crate::disk;

pub fn read(path: &Path) -> io::Result<Orders> {
    match disk::read(path)? {
        None => Ok(Orders::default()),
        Some(text) => serde_json::from_slice(&text).map_err(|error| {
            let text = format!("{} cannot be understood: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        }),
    }
}

pub fn write(orders: &Orders, path: &Path) -> io::Result<()> {
    let text = serde_json::to_vec(orders).expect("orders have only text keys, so they always have a JSON form");
    disk::replace(path, &text)
}
