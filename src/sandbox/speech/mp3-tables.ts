import { PrefixCode } from "./prefix-code.ts";

/** Codes of pairs of magnitudes. The upper four bits of a symbol are the first of the pair. */
export interface PairTable {
  /** Number of the table in the side information. */
  readonly number: number;
  readonly code: PrefixCode;
  /** Largest magnitude that the table can code. */
  readonly max: number;
  /** Number of bits after the largest symbol. They add to its magnitude. */
  readonly extraBits: number;
}

const LARGEST_SYMBOL = 15;
const ESCAPING = new PrefixCode(
  "8ef8fe8df8fd8cf8fc8bf8fb7fa8af89f7f97f888f87f7f776f7f675f7f574f7f473f7f372f7f27f181f8f090f" +
    "beebdebedbcebecbddbbebebbcdbdcbaebeabbdbdbbccb9ebe9badbdabbcbcbb8ebe8b9dbd9b7ebe7bac4ffbca" +
    "bbbb8dbd8c0ece0b0dae6b6eb9cac9a5eabaae5babb7dad7ae4a8cac8b4eb2ea3ea6dad6ae3a9bab9aaaae2a1e" +
    "ae1a5dad5a7cac7a4da8bab8ad4a9aaa9a6cac6a3dad3a2dad2a1da7bab7ad1a5cac5a8aaa8a99a4cac4a6bab6" +
    "bd0b0ca3cac3a7aaa7a2cac2a5bab5a1ca89a98ac1a4bbc0b0ba3bbb0b0aa1a9b4a6aaa6a79a97ba0b09a909b3" +
    "988a2ba5a9b2aa5a1bab1a699969a4a4aa7898793a9a395999592a9a29a1968986977949994939993958985929" +
    "967976992919991948984957975938983966928982918947974981a08a80956965917a07a70873937927872846" +
    "864855871836863845854826862816861906960835853844825852815905950751834843724742733714741804" +
    "840723732613631703730622512521602620411401410400",
);

/** Some of the tables of ISO 11172-3, annex B.7, sorted by the largest magnitude. */
export const PAIR_TABLES: readonly PairTable[] = [
  {
    number: 7,
    max: 5,
    extraBits: 0,
    code: new PrefixCode(
      "a55a45a54a53935944925952815851905934850943933824842714741740804823832803713731730722612521" +
        "602620411301310100",
    ),
  },
  {
    number: 10,
    max: 7,
    extraBits: 0,
    code: new PrefixCode(
      "b77b67b76b57b75b66a47a74a56a65a37a73a46b55b54a63927972a64a07970962a45a35906a53a44817871936" +
        "926a25a52915951a34a43816861860905950924942933904814841840823832803713731730722612621602620" +
        "411301310100",
    ),
  },
  {
    number: 13,
    max: LARGEST_SYMBOL,
    extraBits: 0,
    code: new PrefixCode(
      "jfejfcifdhedgffgefgdfgeegcfgdegbfgfbgcegdchafhe9fecfddgfagcdfbefebf9fff9feafbdfdbf8fff8fcc" +
        "gaeg9ef8eg7fg7eef7edafadfbcfcbff6e6fee8e5fe9ded9ef5ee7eacebbe4fef4fcafe6ef3d3fe8ded8d2fdf2" +
        "e6ee9cd0fec9e5edabe7ded7d4eec8ed6d3edb9e9beaac1fcf1cf0dbade5de4d8cd6dde3ce2d2ed0ec1ece1de0" +
        "d5ddd5d7cdc7d4dd8bdb8dd4d9ada9d6ccc6c3ddd3d7bc2dcd2c1dcb7d5cdc5d99d7acc3da7d97c4bbd1c0dcd0" +
        "c8aca8c4ccc4c6bcb6b3cb2cbc2b5bcb5c89b1cbc1c98c0cbc0cb4c6aca6c79b3bbb3c88c5ab2bca5c69ba4c78" +
        "c87b94c77c76ab2a1bab1b0bbb0b96b4ab3aba3b59b95a2aaa2a1aaa1b0ab68aa0b86b49a93b39b58b85b67a29" +
        "a92b57b75a38a83b66b47b74b56b65b73919991a09a90a48a84a72b46b64928982918a37a27917971a55a07a70" +
        "a36a63a45a54a26a62a35881908980916961906960a53a44925952905815851934943950924942933814741804" +
        "840823832713731703730722612621602620411401310100",
    ),
  },
  // These tables differ in the number of bits after the largest symbol.
  ...[4, 6, 8, 13].map((extraBits) => ({
    number: { 4: 24, 6: 26, 8: 28, 13: 31 }[extraBits]!,
    max: LARGEST_SYMBOL + 2 ** extraBits - 1,
    extraBits,
    code: ESCAPING,
  })),
];

/**
 * The first half and the middle of the low-pass filter that divides the audio into subbands (ISO 11172-3,
 * table 3-C.1, without the signs of its odd blocks), in 1/65,536 of the decoder's values.
 */
const WINDOW_TO_MIDDLE = [
  0, -1, -1, -1, -1, -1, -1, -2, -2, -2, -2, -3, -3, -4, -4, -5, -5, -6, -7, -7, -8, -9, -10, -11,
  -13, -14, -16, -17, -19, -21, -24, -26, -29, -31, -35, -38, -41, -45, -49, -53, -58, -63, -68,
  -73, -79, -85, -91, -97, -104, -111, -117, -125, -132, -139, -147, -154, -161, -169, -176, -183,
  -190, -196, -202, -208, -213, -218, -222, -225, -227, -228, -228, -227, -224, -221, -215, -208,
  -200, -189, -177, -163, -146, -127, -106, -83, -57, -29, 2, 36, 72, 111, 153, 197, 244, 294, 347,
  401, 459, 519, 581, 645, 711, 779, 848, 919, 991, 1064, 1137, 1210, 1283, 1356, 1428, 1498, 1567,
  1634, 1698, 1759, 1817, 1870, 1919, 1962, 2001, 2032, 2057, 2075, 2085, 2087, 2080, 2063, 2037,
  2000, 1952, 1893, 1822, 1739, 1644, 1535, 1414, 1280, 1131, 970, 794, 605, 402, 185, -45, -288,
  -545, -814, -1095, -1388, -1692, -2006, -2330, -2663, -3004, -3351, -3705, -4063, -4425, -4788,
  -5153, -5517, -5879, -6237, -6589, -6935, -7271, -7597, -7910, -8209, -8491, -8755, -8998, -9219,
  -9416, -9585, -9727, -9838, -9916, -9959, -9966, -9935, -9863, -9750, -9592, -9389, -9139, -8840,
  -8492, -8092, -7640, -7134, -6574, -5959, -5288, -4561, -3776, -2935, -2037, -1082, -70, 998,
  2122, 3300, 4533, 5818, 7154, 8540, 9975, 11455, 12980, 14548, 16155, 17799, 19478, 21189, 22929,
  24694, 26482, 28289, 30112, 31947, 33791, 35640, 37489, 39336, 41176, 43006, 44821, 46617, 48390,
  50137, 51853, 53534, 55178, 56778, 58333, 59838, 61289, 62684, 64019, 65290, 66494, 67629, 68692,
  69679, 70590, 71420, 72169, 72835, 73415, 73908, 74313, 74630, 74856, 74992, 75038,
];

const WINDOW_LENGTH = 512;
const BLOCK_LENGTH = 64;

/** The encoder's window: 1/32 of the decoder's values. */
export const ANALYSIS_WINDOW = Float64Array.from({ length: WINDOW_LENGTH }, (_, index) => {
  const value = WINDOW_TO_MIDDLE[Math.min(index, WINDOW_LENGTH - index)]! / 65_536 / 32;
  return Math.floor(index / BLOCK_LENGTH) % 2 === 0 ? value : -value;
});
