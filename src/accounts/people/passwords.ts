import { overloaded } from "../../lib/errors.ts";

/** Lengths of passwords, in characters. */
export const MIN_PASSWORD_CHARACTERS = 12;
export const MAX_PASSWORD_CHARACTERS = 256;

/** Argon2id with the parameters that OWASP recommends for 19 MiB. */
const ALGORITHM = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Hashes that are computed at the same time. Each takes a thread and 19 MiB. */
const MAX_RUNNING = 4;
const MAX_WAITING = 200;

/** Hashes and verifies passwords. Bounds the threads and the memory that a flood of sign-ins takes. */
export class Passwords {
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  /** The hash that the password of an unknown address is compared with, so that the answer takes as long. */
  #unknown: Promise<string> | undefined;

  /** Returns the hash in the PHC format. Throws 503 if too many hashes wait. */
  hash(password: string): Promise<string> {
    return this.#inTurn(() => Bun.password.hash(password, ALGORITHM));
  }

  /** Returns true if the password has the hash. With null it takes as long, and returns false. */
  async verify(password: string, hash: string | null): Promise<boolean> {
    this.#unknown ??= this.hash(crypto.randomUUID());
    const compared = hash ?? (await this.#unknown);
    const isRight = await this.#inTurn(() => Bun.password.verify(password, compared));
    return isRight && hash !== null;
  }

  async #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running >= MAX_RUNNING) {
      if (this.#waiting.length >= MAX_WAITING) throw overloaded("Too many people are signing in.");
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
      this.#waiting.shift()?.();
    }
  }
}
