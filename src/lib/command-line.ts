/**
 * The command that runs operator's commands, for help and messages: of the package, whose programs are bundled as
 * JavaScript, or of a checkout.
 */
export const CLI = import.meta.path.endsWith(".ts") ? "bun run cli" : "model-gateway cli";
