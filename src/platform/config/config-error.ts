/**
 * Thrown for invalid settings, which stop the start. Each fault is one line with the setting, its
 * value and the accepted values.
 */
export class ConfigError extends Error {
  readonly faults: readonly string[];

  constructor(...faults: readonly string[]) {
    const lines = faults.map((fault) => fault.replaceAll(/\s+/g, " "));
    super(lines.join("\n"));
    this.name = "ConfigError";
    this.faults = lines;
  }
}

/** Collects faults, so that one start reports all of them. */
export class ConfigFaults {
  readonly #faults: string[] = [];

  get count(): number {
    return this.#faults.length;
  }

  get all(): readonly string[] {
    return this.#faults;
  }

  /**
   * Returns the result of the attempt. If the attempt throws ConfigError, collects its faults and
   * returns `placeholder`.
   */
  attempt<Value>(attempt: () => Value, placeholder: Value): Value {
    try {
      return attempt();
    } catch (error) {
      this.add(error);
      return placeholder;
    }
  }

  /** Collects the faults of a ConfigError. Throws any other error again. */
  add(error: unknown): void {
    if (!(error instanceof ConfigError)) throw error;
    this.#faults.push(...error.faults);
  }

  /** Throws ConfigError with all faults, each once, if there are any. */
  throwAny(): void {
    if (this.#faults.length > 0) throw new ConfigError(...new Set(this.#faults));
  }
}

const SHOWN_VALUE_LENGTH = 80;

/** The text that replaces a secret in a message. */
export const MASKED = "***";

/**
 * Returns the error for an invalid setting.
 *
 * @param setting the variable, or the file and the JSON pointer in it
 * @param value the invalid value; `undefined` reads as "not set"
 * @param accepted completes "must be …"
 */
export function refuse(setting: string, value: unknown, accepted: string): ConfigError {
  return new ConfigError(`${setting} is ${shownValue(value)}, but must be ${accepted}`);
}

/** Returns the error for an invalid secret, whose value is never shown. */
export function refuseSecret(setting: string, accepted: string): ConfigError {
  return new ConfigError(`${setting} is ${MASKED}, but must be ${accepted}`);
}

/**
 * Returns the value for a message. Lists and objects can contain secrets, so only their kind is
 * shown.
 */
function shownValue(value: unknown): string {
  if (value === undefined) return "not set";
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "an object";
  const text = JSON.stringify(value);
  return text.length <= SHOWN_VALUE_LENGTH ? text : `${text.slice(0, SHOWN_VALUE_LENGTH)}…`;
}

/**
 * Returns a URL with its user, password and query masked, because they can be secret. Masks the
 * whole text if it is not a URL.
 */
export function maskUrl(text: string): string {
  const scheme = /^[a-z][a-z0-9+.-]*:\/\//i.exec(text)?.[0];
  if (scheme === undefined) return MASKED;
  const rest = text.slice(scheme.length);
  const credentialsEnd = rest.lastIndexOf("@");
  const masked = credentialsEnd < 0 ? rest : `${MASKED}@${rest.slice(credentialsEnd + 1)}`;
  return scheme + masked.replace(/[?#].*$/s, `?${MASKED}`);
}
