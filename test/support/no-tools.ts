/** Of a gateway that runs no tools for models. */
export const noTools = {
  prices: { webSearchFemto: 0n, fileSearchFemto: 0n },
  webSearch: undefined,
  mayUseComputer: async () => false,
};
