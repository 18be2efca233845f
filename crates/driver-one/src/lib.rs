//! The driver of OpenNebula: it translates and never decides.
