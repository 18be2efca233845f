//! Disk images of the appliances: built out of Debian's packages and our program without a hypervisor, a mount or a loop
//! device, and the same bytes for the same input.
//!
//! `recipe` says what is in one, `clean` and `secrets` what is not, `ext4`, `gpt` and `grub` how it lies on a disk: all pure.
//! `build` and `verify` do it, with programs of others (`tools`, `command`).

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
