import type { ImageVariant, ModelPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";
import type { Usage } from "../../lib/usage.ts";

/** The known size and quality of a call's images. An absent member is unknown. */
type KnownVariant = NonNullable<Usage["imageVariant"]>;

type VariantPrices = Pick<ModelPrices, "imageVariants" | "imageFemto">;

/**
 * Returns the price of an image: the price of the first variant that matches, or else of an image without a
 * variant.
 */
export function imagePriceFemto(prices: VariantPrices, image: KnownVariant): FemtoUsd {
  const { imageVariants, imageFemto = 0n } = prices;
  if (imageVariants === undefined) return imageFemto;
  return imageVariants.find((variant) => mayBe(variant, image))?.imageFemto ?? imageFemto;
}

/**
 * Returns the highest price of an image that the request can get. A member that the request omits can have any
 * value.
 */
export function highestImageFemto(prices: VariantPrices, requested: KnownVariant): FemtoUsd {
  const { imageVariants = [], imageFemto = 0n } = prices;
  const fitting = imageVariants.filter((variant) => mayBe(variant, requested));
  const isSettled = fitting[0] !== undefined && isAll(fitting[0], requested);
  const variantPrices = fitting.map((variant) => variant.imageFemto ?? imageFemto);
  if (isSettled) return variantPrices[0]!;
  return variantPrices.reduce((most, price) => (price > most ? price : most), imageFemto);
}

/**
 * Returns the most output tokens of an image that the request can get. Returns undefined if no variant matches,
 * or if a matching variant does not state them.
 */
export function mostImageTokens(
  { imageVariants = [] }: VariantPrices,
  requested: KnownVariant,
): number | undefined {
  const fitting = imageVariants.filter((variant) => mayBe(variant, requested));
  if (fitting[0] !== undefined && isAll(fitting[0], requested)) return fitting[0].maxTokens;
  if (fitting.length === 0 || fitting.some(({ maxTokens }) => maxTokens === undefined)) {
    return undefined;
  }
  return Math.max(...fitting.map(({ maxTokens }) => maxTokens!));
}

/** Returns true if no known member contradicts the variant. */
function mayBe(variant: ImageVariant, image: KnownVariant): boolean {
  return isOpen(variant.size, image.size) && isOpen(variant.quality, image.quality);
}

/** Returns true if the variant matches whatever the unknown members are. */
function isAll(variant: ImageVariant, image: KnownVariant): boolean {
  return isCovered(variant.size, image.size) && isCovered(variant.quality, image.quality);
}

function isOpen(stated: string | undefined, actual: string | undefined): boolean {
  return stated === undefined || actual === undefined || stated === actual;
}

function isCovered(stated: string | undefined, actual: string | undefined): boolean {
  return stated === undefined || stated === actual;
}
