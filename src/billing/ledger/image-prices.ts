import type { ImageVariant, ModelPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";
import type { Usage } from "../../lib/usage.ts";

/** What is known of the images of a call; absent: nothing. */
type KnownVariant = NonNullable<Usage["imageVariant"]>;

type VariantPrices = Pick<ModelPrices, "imageVariants" | "imageFemto">;

/** What one image costs: as the first variant that fits, or as one that no variant fits. */
export function imagePriceFemto(prices: VariantPrices, known: KnownVariant): FemtoUsd {
  const { imageVariants, imageFemto = 0n } = prices;
  if (imageVariants === undefined) return imageFemto;
  return imageVariants.find((variant) => mayBe(variant, known))?.imageFemto ?? imageFemto;
}

/** The most that one image costs of those that the request may get; what it leaves open may be any. */
export function dearestImageFemto(prices: VariantPrices, asked: KnownVariant): FemtoUsd {
  const { imageVariants = [], imageFemto = 0n } = prices;
  const fitting = imageVariants.filter((variant) => mayBe(variant, asked));
  const isSettled = fitting[0] !== undefined && isAll(fitting[0], asked);
  const own = fitting.map((variant) => variant.imageFemto ?? imageFemto);
  if (isSettled) return own[0]!;
  return own.reduce((most, price) => (price > most ? price : most), imageFemto);
}

/** The same for the output tokens of one image; undefined where no variant states them. */
export function mostImageTokens(
  { imageVariants = [] }: VariantPrices,
  asked: KnownVariant,
): number | undefined {
  const fitting = imageVariants.filter((variant) => mayBe(variant, asked));
  if (fitting[0] !== undefined && isAll(fitting[0], asked)) return fitting[0].maxTokens;
  if (fitting.length === 0 || fitting.some(({ maxTokens }) => maxTokens === undefined)) {
    return undefined;
  }
  return Math.max(...fitting.map(({ maxTokens }) => maxTokens!));
}

/** Nothing that is known contradicts it. */
function mayBe(variant: ImageVariant, known: KnownVariant): boolean {
  return isOpen(variant.size, known.size) && isOpen(variant.quality, known.quality);
}

/** Every image that is known so far is one of these, whatever else becomes known of it. */
function isAll(variant: ImageVariant, known: KnownVariant): boolean {
  return isCovered(variant.size, known.size) && isCovered(variant.quality, known.quality);
}

function isOpen(stated: string | undefined, known: string | undefined): boolean {
  return stated === undefined || known === undefined || stated === known;
}

function isCovered(stated: string | undefined, known: string | undefined): boolean {
  return stated === undefined || stated === known;
}
