//! Which release of Flower an image holds, and what its programs are called with.
