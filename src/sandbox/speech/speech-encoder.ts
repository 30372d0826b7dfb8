/** Sample rate in Hz. All speech is mono with 16-bit samples. */
export const SAMPLE_RATE = 24_000;

/** Encodes samples as a file, piece by piece. */
export interface SpeechEncoder {
  /** True if the encoder sends a recording and ignores the samples. */
  readonly isRecording?: true;
  /** Samples of a frame. The last frame can have fewer. */
  readonly frameSamples: number;
  /** Number of silent samples to add at the end, so that the decoder outputs all of the speech. */
  readonly trailingSamples: number;
  /** Returns the bytes before the first frame. */
  head(): Uint8Array;
  /** Returns the bytes of one more frame, possibly none. The caller reuses the array of samples. */
  encode(samples: Int16Array, isLast: boolean): Uint8Array;
  /** Frees the memory of the encoder. */
  close?(): void;
}

export interface SpeechFacts {
  /** Length of the whole speech, in samples. */
  readonly totalSamples: number;
  /** Content of the file's comment tag: see `spoken-text.ts`. */
  readonly comment: string;
}
