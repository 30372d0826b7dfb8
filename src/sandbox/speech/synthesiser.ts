import { PAUSE, type Phone } from "./phones.ts";
import { SAMPLE_RATE } from "./speech-encoder.ts";
import type { SpokenPhone, Utterance } from "./utterance.ts";

interface Voice {
  readonly pitchHz: number;
  /** Factor of the formants. A shorter throat has higher formants. */
  readonly scale: number;
}

/** OpenAI's first voices, from low to high. */
const VOICES: Readonly<Record<string, Voice>> = {
  onyx: { pitchHz: 88, scale: 0.94 },
  echo: { pitchHz: 105, scale: 0.97 },
  alloy: { pitchHz: 128, scale: 1 },
  fable: { pitchHz: 150, scale: 1.04 },
  nova: { pitchHz: 195, scale: 1.13 },
  shimmer: { pitchHz: 220, scale: 1.17 },
};
const LOWEST_HZ = 90;
const HIGHEST_HZ = 230;

/** Returns a voice by name. Names other than those above get a pitch derived from the name. */
function voiceOf(name: string): Voice {
  const preset = Object.hasOwn(VOICES, name) ? VOICES[name] : undefined;
  if (preset !== undefined) return preset;
  const share = (Bun.hash.xxHash32(name) % 1000) / 1000;
  return { pitchHz: LOWEST_HZ + (HIGHEST_HZ - LOWEST_HZ) * share, scale: 0.95 + 0.22 * share };
}

/** Samples between two movements of the mouth. */
const STEP_SAMPLES = 120;
/** Share of the way to the next sound that one movement covers. */
const STEP_SHARE = 0.35;
const FORMANT_WIDTHS_HZ = [70, 100, 150, 250] as const;
const FOURTH_FORMANT_HZ = 3500;
const LOUDNESS = 9_000;
/** Lips radiate higher tones better: the share of the previous sample that is subtracted. */
const LIPS = 0.6;
const MAX_SAMPLE = 32_000;

/**
 * Creates the samples of an utterance by formant synthesis. Resonators, which model throat and mouth, shape
 * the pulses of a voice and noise. The same utterance and voice give the same samples.
 */
export class Synthesiser {
  readonly #phones: readonly SpokenPhone[];
  readonly #voice: Voice;
  readonly #formants = FORMANT_WIDTHS_HZ.map(() => new Resonator());
  readonly #mouth = new Resonator();
  #index = 0;
  #samplesInPhone = 0;
  #samplesToStep = 0;
  #phase = 0;
  #noiseState = 1;
  #throat = 0;
  #now: Phone = PAUSE;
  #pitch = 1;

  constructor({ phones }: Utterance, voice: string) {
    this.#phones = phones;
    this.#voice = voiceOf(voice);
  }

  /** Fills the array with the next samples, or with silence after the end of the utterance. */
  fill(samples: Int16Array): void {
    for (let index = 0; index < samples.length; index++) samples[index] = this.#next();
  }

  #next(): number {
    let current = this.#phones[this.#index];
    while (current !== undefined && this.#samplesInPhone >= current.samples) {
      current = this.#phones[++this.#index];
      this.#samplesInPhone = 0;
    }
    this.#samplesInPhone++;
    if (this.#samplesToStep-- === 0) {
      this.#samplesToStep = STEP_SAMPLES - 1;
      this.#step(current?.phone ?? PAUSE, current?.pitch ?? 1);
    }
    const { voice, breath, noise } = this.#now;
    const hiss = this.#noise();
    let throat = voice * this.#pulse() + breath * hiss * 0.25;
    for (const formant of this.#formants) throat = formant.pass(throat);
    const lips = throat - LIPS * this.#throat;
    this.#throat = throat;
    const sample = LOUDNESS * (lips + noise * this.#mouth.pass(hiss) * 0.4);
    return Math.max(-MAX_SAMPLE, Math.min(MAX_SAMPLE, Math.round(sample)));
  }

  /** Moves the mouth towards a phone. */
  #step(to: Phone, pitch: number): void {
    const from = this.#now;
    const towards = (before: number, after: number) => before + (after - before) * STEP_SHARE;
    const [first, second, third] = from.formants.map((hz, index) =>
      towards(hz, to.formants[index]!),
    );
    this.#now = {
      ...to,
      formants: [first!, second!, third!],
      voice: towards(from.voice, to.voice),
      breath: towards(from.breath, to.breath),
      noise: towards(from.noise, to.noise),
    };
    this.#pitch = towards(this.#pitch, pitch);
    const { scale } = this.#voice;
    for (const [index, formant] of this.#formants.entries()) {
      const hz = this.#now.formants[index] ?? FOURTH_FORMANT_HZ;
      formant.tune(hz * scale, FORMANT_WIDTHS_HZ[index]!);
    }
    this.#mouth.tune(to.noiseHz, to.noiseWidthHz);
  }

  /** Returns the change of the air flow through the glottis, which opens slowly, closes fast and rests. */
  #pulse(): number {
    this.#phase += (this.#voice.pitchHz * this.#pitch) / SAMPLE_RATE;
    if (this.#phase >= 1) this.#phase -= 1;
    const phase = this.#phase;
    if (phase < 0.4) return 0.5 * Math.sin((Math.PI * phase) / 0.4);
    return phase < 0.56 ? -1.25 * Math.sin((Math.PI * (phase - 0.4)) / 0.32) : 0;
  }

  /** Returns noise between -1 and 1. The sequence is always the same. */
  #noise(): number {
    let state = this.#noiseState;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#noiseState = state;
    return state / 2 ** 31;
  }
}

/** A second-order filter that passes one frequency best. */
class Resonator {
  #gain = 1;
  #first = 0;
  #second = 0;
  #last = 0;
  #beforeLast = 0;

  tune(hz: number, widthHz: number): void {
    const radius = Math.exp((-Math.PI * widthHz) / SAMPLE_RATE);
    const centre = Math.min(hz, SAMPLE_RATE * 0.45);
    this.#first = 2 * radius * Math.cos((2 * Math.PI * centre) / SAMPLE_RATE);
    this.#second = -radius * radius;
    this.#gain = 1 - this.#first - this.#second;
  }

  pass(sample: number): number {
    const output = this.#gain * sample + this.#first * this.#last + this.#second * this.#beforeLast;
    this.#beforeLast = this.#last;
    this.#last = output;
    return output;
  }
}
