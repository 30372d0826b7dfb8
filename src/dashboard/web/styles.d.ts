/** Style sheets are imported for the build to gather them. */
declare module "*.css";
