/** The version of this package, as `package.json` has it. */
export const PACKAGE_VERSION = "0.1.0";
