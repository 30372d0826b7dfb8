/** The archive of the package, which `release/executable.ts` makes and embeds. */
declare module "package-archive" {
  /** Path of the file in the executable. */
  const path: string;
  export default path;
}
