//! What to do so that a federation becomes what its document says: decisions, the driver port, the controller.
