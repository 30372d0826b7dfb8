/**
 * Something of each organization that is read when it is first asked for, and kept until the change feed reports
 * a change. Where it is full those that were read first make room.
 */
export class OrganizationCache<Value extends object> {
  readonly #read: (organizationId: string) => Promise<Value>;
  readonly #maxOrganizations: number;
  /** A promise is a read under way; one that is not here any more was forgotten while it ran. */
  readonly #known = new Map<string, Value | Promise<Value>>();
  /** Reads that begin when the one under way ends. */
  readonly #next = new Map<string, Promise<Value>>();

  constructor(maxOrganizations: number, read: (organizationId: string) => Promise<Value>) {
    this.#maxOrganizations = maxOrganizations;
    this.#read = read;
  }

  /** At once where it is known, which it is but for an organization's first time. Rejects where it cannot be read. */
  of(organizationId: string): Value | Promise<Value> {
    return this.#known.get(organizationId) ?? this.readNow(organizationId);
  }

  /** Reads it, whatever is known or being read. */
  readNow(organizationId: string): Promise<Value> {
    const reading = this.#read(organizationId);
    this.#known.set(organizationId, reading);
    const isCurrent = () => this.#known.get(organizationId) === reading;
    reading.then(
      (value) => isCurrent() && this.#known.set(organizationId, value),
      () => isCurrent() && this.#known.delete(organizationId),
    );
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= this.#maxOrganizations) break;
      this.#known.delete(oldest);
    }
    return reading;
  }

  /** The same, one read at a time for each organization, shared by all that ask before it begins. */
  readAgain(organizationId: string): Promise<Value> {
    const current = this.#known.get(organizationId);
    if (!(current instanceof Promise)) return this.readNow(organizationId);
    let next = this.#next.get(organizationId);
    if (next === undefined) {
      const begin = () => {
        this.#next.delete(organizationId);
        return this.readNow(organizationId);
      };
      next = current.then(begin, begin);
      this.#next.set(organizationId, next);
    }
    return next;
  }

  forget(organizationId: string): void {
    this.#known.delete(organizationId);
  }

  forgetAll(): void {
    this.#known.clear();
  }
}
