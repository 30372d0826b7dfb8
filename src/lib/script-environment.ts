/**
 * The whole environment of a child process that runs a script by `process.execPath` and needs no settings. In the
 * single executable that path is the executable itself, which runs a script only with this variable. Bun ignores it.
 */
export const SCRIPT_ENVIRONMENT = { BUN_BE_BUN: "1" } as const;
