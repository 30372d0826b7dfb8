/** Style sheets are imported so that the build collects them. */
declare module "*.css";
