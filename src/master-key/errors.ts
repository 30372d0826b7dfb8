/** What keeps a master key from being used or changed. The message is one line that names the way out. */
export class MasterKeyError extends Error {
  override readonly name = "MasterKeyError";
}
