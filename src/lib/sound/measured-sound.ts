/** The duration of audio in seconds. */
export interface MeasuredSound {
  /**
   * Duration of its packets, whatever its container states. At least the duration of its bytes at the codec's
   * highest rate.
   */
  readonly seconds: number;
  /**
   * Longest duration that a decoder can play: the one that the container states, or the most that the packets can
   * contain.
   */
  readonly longestSeconds: number;
}

export const NO_SOUND: MeasuredSound = { seconds: 0, longestSeconds: 0 };

/** Returns the duration of streams that a decoder plays one after the other. */
export function playedInTurn(sounds: readonly MeasuredSound[]): MeasuredSound {
  return {
    seconds: sounds.reduce((sum, { seconds }) => sum + seconds, 0),
    longestSeconds: sounds.reduce((sum, { longestSeconds }) => sum + longestSeconds, 0),
  };
}

/** Returns the longest duration of alternative tracks, because a decoder plays only one of them. */
export function longestOf(sounds: readonly MeasuredSound[]): MeasuredSound {
  return {
    seconds: Math.max(0, ...sounds.map(({ seconds }) => seconds)),
    longestSeconds: Math.max(0, ...sounds.map(({ longestSeconds }) => longestSeconds)),
  };
}
