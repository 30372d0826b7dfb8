/** Reads protobuf without its description: messages by the numbers of their fields. */

interface Field {
  readonly number: number;
  readonly content: bigint | Uint8Array;
}

export const parts = (bytes: Uint8Array, number: number): Uint8Array[] =>
  fieldsOf(bytes).flatMap((field) =>
    field.number === number && field.content instanceof Uint8Array ? [field.content] : [],
  );
export const hexIn = (bytes: Uint8Array, number: number) => parts(bytes, number)[0]?.toHex() ?? "";
export const textIn = (bytes: Uint8Array, number: number) =>
  new TextDecoder().decode(parts(bytes, number)[0]);

export function numberIn(bytes: Uint8Array, number: number): bigint {
  const found = fieldsOf(bytes).find((field) => field.number === number)?.content;
  return typeof found === "bigint" ? found : 0n;
}

export function doubleIn(bytes: Uint8Array, number: number): number | undefined {
  const found = fieldsOf(bytes).find((field) => field.number === number)?.content;
  return typeof found === "bigint" ? doubleOf(found) : undefined;
}

export function doubleOf(bits: bigint): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, bits);
  return view.getFloat64(0);
}

/** The fields of a message, in their order (protobuf's encoding). */
export function fieldsOf(bytes: Uint8Array): Field[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fields: Field[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]!;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = tag >> 3;
    const wire = tag & 7;
    if (wire === 0) fields.push({ number, content: varint() });
    else if (wire === 2) {
      const length = Number(varint());
      fields.push({ number, content: bytes.subarray(at, at + length) });
      at += length;
    } else {
      const size = wire === 1 ? 8 : 4;
      const content = wire === 1 ? view.getBigUint64(at, true) : BigInt(view.getUint32(at, true));
      fields.push({ number, content });
      at += size;
    }
  }
  return fields;
}
