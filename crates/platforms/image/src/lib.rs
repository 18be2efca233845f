//! Disk images of the appliances: built from Debian packages and our program without a hypervisor, mount or loop device.
//! Builds are reproducible.
//!
//! `recipe` selects the contents, `clean` and `secrets` exclude some, `ext4`, `gpt` and `grub` define the disk layout: all
//! pure. `build` and `verify` run external programs (`tools`, `command`).

pub mod build;
pub mod clean;
mod command;
pub mod disk;
pub mod ext4;
pub mod gpt;
pub mod grub;
pub mod metadata;
pub mod recipe;
pub mod secrets;
pub mod tools;
pub mod tree;
pub mod verify;
