/** Settings that stop the start: for each fault one line with the setting, its value, what is accepted. */
export class ConfigError extends Error {
  readonly faults: readonly string[];

  constructor(...faults: readonly string[]) {
    const lines = faults.map((fault) => fault.replaceAll(/\s+/g, " "));
    super(lines.join("\n"));
    this.name = "ConfigError";
    this.faults = lines;
  }
}

/** Gathers what is wrong, so that one start tells all of it. */
export class ConfigFaults {
  readonly #faults: string[] = [];

  get count(): number {
    return this.#faults.length;
  }

  /** What the attempt gives, or `placeholder` where it throws ConfigError, whose faults are kept. */
  attempt<Value>(attempt: () => Value, placeholder: Value): Value {
    try {
      return attempt();
    } catch (error) {
      this.add(error);
      return placeholder;
    }
  }

  /** Throws again what is no ConfigError. */
  add(error: unknown): void {
    if (!(error instanceof ConfigError)) throw error;
    this.#faults.push(...error.faults);
  }

  /** Throws ConfigError with all faults, each once, where there are any. */
  throwAny(): void {
    if (this.#faults.length > 0) throw new ConfigError(...new Set(this.#faults));
  }
}

const SHOWN_VALUE_LENGTH = 80;

/** What stands in a message for the value of a secret. */
export const MASKED = "***";

/**
 * @param setting the variable, or the file and the JSON pointer in it
 * @param value what was found; `undefined` reads as "not set"
 * @param accepted completes "must be …"
 */
export function refuse(setting: string, value: unknown, accepted: string): ConfigError {
  return new ConfigError(`${setting} is ${shownValue(value)}, but must be ${accepted}`);
}

/** The same for a secret, whose value is never shown. */
export function refuseSecret(setting: string, accepted: string): ConfigError {
  return new ConfigError(`${setting} is ${MASKED}, but must be ${accepted}`);
}

/** Lists and objects may hold secrets, so only their kind is shown. */
function shownValue(value: unknown): string {
  if (value === undefined) return "not set";
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "an object";
  const text = JSON.stringify(value);
  return text.length <= SHOWN_VALUE_LENGTH ? text : `${text.slice(0, SHOWN_VALUE_LENGTH)}…`;
}

/** A URL without what may be secret in it: user, password and query. Text that is no URL is masked whole. */
export function maskUrl(text: string): string {
  const scheme = /^[a-z][a-z0-9+.-]*:\/\//i.exec(text)?.[0];
  if (scheme === undefined) return MASKED;
  const rest = text.slice(scheme.length);
  const credentialsEnd = rest.lastIndexOf("@");
  const masked = credentialsEnd < 0 ? rest : `${MASKED}@${rest.slice(credentialsEnd + 1)}`;
  return scheme + masked.replace(/[?#].*$/s, `?${MASKED}`);
}
