/** A URL of a user's that nothing is sent to. The message is for that user; it tells no address. */
export class EgressRefused extends Error {
  constructor(message: string) {
    super(message);
    this.name = "EgressRefused";
  }
}

/** No address is known for a name, now: another time there may be one. */
export class NameNotResolved extends Error {
  constructor(cause: unknown) {
    super("the host name could not be resolved", { cause });
    this.name = "NameNotResolved";
  }
}
