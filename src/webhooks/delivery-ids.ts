import { createCipheriv, createDecipheriv } from "node:crypto";

/** What the ids of one webhook's deliveries are made with. */
export interface DeliveryIdSetting {
  /** A UUID: 128 random bits. */
  readonly key: string;
  /** Up to this outbox id the previous form of ids is understood too. */
  readonly plainUpTo: bigint;
}

const ID = /^dlv_([0-9a-f]{32})$/;
/** As ids were before: the outbox id itself. */
const PLAIN_ID = /^dlv_([0-9a-f]{16})$/;
const CIPHER = "aes-128-ecb";
const BLOCK_BYTES = 16;
const ID_BYTES = 8;

/**
 * Ids of the deliveries of one webhook: outbox ids, which count the events of all organizations, encrypted
 * as one block with a key of the webhook's. Nobody else can read them or make one, and none is stored.
 */
export class DeliveryIds {
  readonly #key: Buffer;
  readonly #plainUpTo: bigint;

  constructor({ key, plainUpTo }: DeliveryIdSetting) {
    this.#key = Buffer.from(key.replaceAll("-", ""), "hex");
    this.#plainUpTo = plainUpTo;
  }

  idOf(outboxId: bigint): string {
    const block = Buffer.alloc(BLOCK_BYTES);
    block.writeBigInt64BE(outboxId);
    const cipher = createCipheriv(CIPHER, this.#key, null).setAutoPadding(false);
    return `dlv_${Buffer.concat([cipher.update(block), cipher.final()]).toString("hex")}`;
  }

  /** Undefined where it is the id of no delivery. */
  outboxIdOf(id: string): bigint | undefined {
    const digits = ID.exec(id)?.[1];
    if (digits === undefined) return this.#plainIdOf(id);
    const decipher = createDecipheriv(CIPHER, this.#key, null).setAutoPadding(false);
    const block = Buffer.concat([decipher.update(Buffer.from(digits, "hex")), decipher.final()]);
    const isOurs = block.subarray(ID_BYTES).every((byte) => byte === 0);
    return isOurs ? block.readBigInt64BE() : undefined;
  }

  #plainIdOf(id: string): bigint | undefined {
    const digits = PLAIN_ID.exec(id)?.[1];
    if (digits === undefined) return undefined;
    const outboxId = BigInt(`0x${digits}`);
    return outboxId <= this.#plainUpTo ? outboxId : undefined;
  }
}
