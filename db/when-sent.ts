/** True for the parameters of a query; with others the driver makes a name or a list for another query. */
export function isTemplate(first: unknown): boolean {
  return Array.isArray(first) && "raw" in first;
}

/**
 * Puts `around` about the sending of a query. The driver sends one when it is first waited for, and those
 * that become part of another one never by themselves: so does this.
 */
export function whenSent(
  query: Promise<unknown>,
  around: (send: () => Promise<unknown>) => Promise<unknown>,
): Promise<unknown> {
  const { then } = query;
  const send = () =>
    new Promise((resolve, reject) => {
      void then.call(query, resolve, reject);
    });
  let sent: Promise<unknown> | undefined;
  // biome-ignore lint/suspicious/noThenProperty: the driver's queries are thenables that begin here
  return Object.defineProperty(query, "then", {
    configurable: true,
    value(onDone?: never, onFailed?: never) {
      sent ??= around(send);
      return sent.then(onDone, onFailed);
    },
  });
}
