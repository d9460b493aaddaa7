export { DelegraphError, Model } from './index.js';
export type * from './index.js';
