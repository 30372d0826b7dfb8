/** The part of the library that is used; its own types describe its native build. */
declare module "@evan/opus/wasm/index.mjs" {
  export class Encoder {
    constructor(options: { channels: 1 | 2; sample_rate: number; application: "voip" | "audio" });
    ctl(setting: number, value: number): number;
    /** Of samples of 16 bits. */
    encode(samples: ArrayBufferView): Uint8Array;
    /** Frees its memory. */
    drop(): void;
  }
}
