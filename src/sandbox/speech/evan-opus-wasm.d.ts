/** The used part of the library. Its own types describe its native build. */
declare module "@evan/opus/wasm/index.mjs" {
  export class Encoder {
    constructor(options: { channels: 1 | 2; sample_rate: number; application: "voip" | "audio" });
    ctl(setting: number, value: number): number;
    /** Encodes 16-bit samples. */
    encode(samples: ArrayBufferView): Uint8Array;
    /** Frees the encoder's memory. */
    drop(): void;
  }
}
