/** All speech is mono at this rate, with samples of 16 bits. */
export const SAMPLE_RATE = 24_000;

/** Makes a file of samples, piece by piece. */
export interface SpeechEncoder {
  /** Samples of a frame; the last one may have fewer. */
  readonly frameSamples: number;
  /** Silent samples to add at the end, until the decoder has given out all of the speech. */
  readonly trailingSamples: number;
  /** What comes before the first frame. */
  head(): Uint8Array;
  /** Bytes of one more frame, or none yet. The array is used again by the caller. */
  encode(samples: Int16Array, isLast: boolean): Uint8Array;
  /** Frees what the encoder holds. */
  close?(): void;
}

export interface SpeechFacts {
  /** Of the whole speech, in samples. */
  readonly totalSamples: number;
  /** To be kept in a tag: see `spoken-text.ts`. */
  readonly comment: string;
}
