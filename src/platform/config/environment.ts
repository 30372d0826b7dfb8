import { isIP } from "node:net";
import { type NanoUsd, nanoFromUsd } from "../../lib/money.ts";
import { ConfigError, type ConfigFaults, maskUrl, refuse, refuseSecret } from "./config-error.ts";
import { defaultText, type SettingName } from "./variables.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

const WHOLE_NUMBER = /^(0|[1-9]\d{0,15})$/;
const DECIMAL_NUMBER = /^(0|[1-9]\d{0,15})(\.\d{1,15})?$/;
/**
 * Text that a header can contain. A line break in a key would otherwise fail at the first request
 * instead of at the start.
 */
const TOKEN = /^[\x21-\x7e]+$/;
const BOOLEANS: Readonly<Record<string, boolean>> = {
  true: true,
  "1": true,
  false: false,
  "0": false,
};

export interface DatabaseUrlForm {
  /** Schemes of the URL, such as `redis`. */
  readonly schemes: readonly string[];
  /** The accepted path. If undefined, any path is accepted. */
  readonly path?: RegExp;
  readonly example: string;
  /**
   * Returns the fault of a parameter of the URL, or undefined. Completes the message "<setting> …".
   */
  faultOf?(url: URL): string | undefined;
}

/** Returns the text of a variable, or undefined if it is unset or empty. */
export function variable(environment: Environment, name: string): string | undefined {
  const text = environment[name];
  return text === undefined || text === "" ? undefined : text;
}

export function secretToken(setting: string, text: string): string {
  if (!TOKEN.test(text)) throw refuseSecret(setting, "printable ASCII without spaces");
  return text;
}

/**
 * Checks an address and removes trailing slashes. Throws ConfigError, which contains no
 * credentials.
 */
export function httpUrl(setting: string, text: string): string {
  const accepted = "an http or https URL without credentials, query and fragment";
  const url = URL.parse(text);
  const plain = url !== null && url.username + url.password === "" && !/[?#\s]/.test(text);
  if (!plain || !/^https?:$/.test(url.protocol)) {
    throw refuse(setting, /[@?#]/.test(text) ? maskUrl(text) : text, accepted);
  }
  return text.replace(/\/+$/, "");
}

/**
 * Reads the gateway's own variables strictly. Every reader throws ConfigError for an invalid value.
 * With `faults` it collects the error there and returns a placeholder, so that the caller can throw
 * all errors together.
 */
export class EnvironmentReader {
  readonly #environment: Environment;
  readonly #faults: ConfigFaults | undefined;

  constructor(environment: Environment, faults?: ConfigFaults) {
    this.#environment = environment;
    this.#faults = faults;
  }

  /** Runs a check of the caller. Treats its ConfigError like an error of this class. */
  check<Value>(attempt: () => Value, placeholder: Value): Value {
    return this.#faults === undefined ? attempt() : this.#faults.attempt(attempt, placeholder);
  }

  /** Returns the text of a variable, or else its documented default. */
  text(name: SettingName): string | undefined {
    return variable(this.#environment, name) ?? defaultText(name);
  }

  /** Returns true if the variable is set to an empty text. */
  isEmpty(name: SettingName): boolean {
    return this.#environment[name]?.trim() === "";
  }

  #required(name: SettingName): string {
    const text = this.text(name);
    if (text === undefined) throw new TypeError(`${name} has no default`);
    return text;
  }

  matching(name: SettingName, pattern: RegExp, accepted: string): string {
    return this.check(() => {
      const text = this.#required(name);
      if (!pattern.test(text)) throw refuse(name, text, accepted);
      return text;
    }, "");
  }

  integer(name: SettingName, minimum: number, maximum: number): number {
    return this.check(() => {
      const text = this.#required(name);
      const value = WHOLE_NUMBER.test(text) ? Number(text) : Number.NaN;
      if (!(value >= minimum && value <= maximum)) {
        throw refuse(name, text, `a whole number from ${minimum} to ${maximum}`);
      }
      return value;
    }, 0);
  }

  decimal(name: SettingName, minimum: number, maximum: number): number {
    return this.check(() => {
      const text = this.#required(name);
      const value = DECIMAL_NUMBER.test(text) ? Number(text) : Number.NaN;
      if (!(value >= minimum && value <= maximum)) {
        throw refuse(name, text, `a decimal number from ${minimum} to ${maximum}`);
      }
      return value;
    }, 0);
  }

  /**
   * Reads an amount in USD.
   *
   * @param maximumUsd in whole USD
   */
  amountNanoUsd(name: SettingName, maximumUsd: number): NanoUsd {
    return this.check(() => {
      const text = this.#required(name);
      const wellFormed = DECIMAL_NUMBER.test(text) && (text.split(".")[1]?.length ?? 0) <= 9;
      if (!wellFormed || Number(text) > maximumUsd) {
        throw refuse(
          name,
          text,
          `an amount in USD from 0 to ${maximumUsd} with at most 9 decimals`,
        );
      }
      return nanoFromUsd(text);
    }, 0n);
  }

  /**
   * Reads a boolean.
   *
   * @param whenUnset the default of a setting whose default depends on other settings
   */
  boolean(name: SettingName, whenUnset?: boolean): boolean {
    if (whenUnset !== undefined && this.text(name) === undefined) return whenUnset;
    return this.check(() => {
      const text = this.#required(name);
      const value = Object.hasOwn(BOOLEANS, text) ? BOOLEANS[text] : undefined;
      if (value === undefined) throw refuse(name, text, "true, false, 1 or 0");
      return value;
    }, false);
  }

  oneOf<const Choice extends string>(name: SettingName, choices: readonly Choice[]): Choice {
    return this.check(() => {
      const text = this.#required(name);
      const choice = choices.find((candidate) => candidate === text);
      if (choice === undefined) throw refuse(name, text, `one of ${choices.join(", ")}`);
      return choice;
    }, choices[0]!);
  }

  secret(name: SettingName): string | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : this.check(() => secretToken(name, text), undefined);
  }

  url(name: SettingName): string | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : this.check(() => httpUrl(name, text), undefined);
  }

  /** Reads the URL of a database, which can contain a password. */
  databaseUrl(name: SettingName, form: DatabaseUrlForm): string | undefined {
    return this.check(() => {
      const text = this.text(name);
      if (text === undefined) return undefined;
      const url = URL.parse(text);
      const isScheme = url !== null && form.schemes.includes(url.protocol.slice(0, -1));
      if (!isScheme || form.path?.test(url.pathname) === false) {
        throw refuse(name, maskUrl(text), `a URL like ${form.example}`);
      }
      const fault = form.faultOf?.(url);
      if (fault !== undefined) throw new ConfigError(`${name} ${fault}`);
      return text;
    }, undefined);
  }

  /** Reads a comma-separated list. Allows spaces around items. */
  list(name: SettingName): string[] {
    const text = this.text(name);
    return text === undefined ? [] : text.split(",").map((item) => item.trim());
  }

  cidrs(name: SettingName): string[] {
    return this.check(() => {
      const items = this.list(name);
      for (const item of items) {
        if (!isCidr(item)) {
          throw refuse(name, item, "comma-separated CIDRs like 10.0.0.0/8 or fd00::/8");
        }
      }
      return items;
    }, []);
  }
}

const PREFIX_LENGTH = /^(0|[1-9]\d{0,2})$/;

/**
 * Returns true for an IPv4 or IPv6 network in CIDR notation (RFC 4632, RFC 4291), without a zone.
 */
function isCidr(text: string): boolean {
  const [address = "", prefixLength = "", ...more] = text.split("/");
  if (more.length > 0 || address.includes("%") || !PREFIX_LENGTH.test(prefixLength)) return false;
  const version = isIP(address);
  return version !== 0 && Number(prefixLength) <= (version === 4 ? 32 : 128);
}
