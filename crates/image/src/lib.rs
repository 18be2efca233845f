//! Disk images of the appliances.
