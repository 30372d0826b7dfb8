/**
 * Caches a value per organization from its first read until the change feed reports a change. If the cache is
 * full, the entries that were read first are dropped.
 */
export class OrganizationCache<Value extends object> {
  readonly #read: (organizationId: string) => Promise<Value>;
  readonly #maxOrganizations: number;
  /**
   * Values, and promises of reads in progress. A promise that is no longer here was forgotten during its read.
   */
  readonly #values = new Map<string, Value | Promise<Value>>();
  /** Reads that begin after the read in progress. */
  readonly #next = new Map<string, Promise<Value>>();

  constructor(maxOrganizations: number, read: (organizationId: string) => Promise<Value>) {
    this.#maxOrganizations = maxOrganizations;
    this.#read = read;
  }

  /** Returns the value immediately if it is cached, otherwise reads it. Rejects if the value cannot be read. */
  of(organizationId: string): Value | Promise<Value> {
    return this.#values.get(organizationId) ?? this.readNow(organizationId);
  }

  /** Reads the value, even if it is cached or being read. */
  readNow(organizationId: string): Promise<Value> {
    const reading = this.#read(organizationId);
    this.#values.set(organizationId, reading);
    const isCurrent = () => this.#values.get(organizationId) === reading;
    reading.then(
      (value) => isCurrent() && this.#values.set(organizationId, value),
      () => isCurrent() && this.#values.delete(organizationId),
    );
    for (const oldest of this.#values.keys()) {
      if (this.#values.size <= this.#maxOrganizations) break;
      this.#values.delete(oldest);
    }
    return reading;
  }

  /** Reads the value again after the read in progress. All callers before that begins share one read. */
  readAgain(organizationId: string): Promise<Value> {
    const current = this.#values.get(organizationId);
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
    this.#values.delete(organizationId);
  }

  forgetAll(): void {
    this.#values.clear();
  }
}
