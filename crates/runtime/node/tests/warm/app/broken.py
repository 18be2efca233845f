"""A ClientApp that cannot be loaded: a module is missing."""

import a_module_that_nobody_has

app = a_module_that_nobody_has.app
