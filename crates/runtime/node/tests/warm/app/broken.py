"""A ClientApp that cannot be loaded: what it needs is not there."""

import a_module_that_nobody_has

app = a_module_that_nobody_has.app
