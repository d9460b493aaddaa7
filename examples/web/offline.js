/** Answers requests from the cache and caches loaded files, so that the pages work without a network afterwards. */
const CACHE = 'delegraph-1';

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(keep()));

/** The files that a page loaded before this worker started, and both pages. */
async function keep() {
  await self.clients.claim();
  const cache = await caches.open(CACHE);
  const files = [
    'index.html', 'inspect.html', 'style.css', 'demo.js', 'inspect.js', 'report.js', 'tasks.js', 'package/index.js',
    'package/worker.js', 'package/worker_host.js', 'package/wasm/delegraph_bg.wasm', 'models/astronaut.png',
    'models/selfie_segmentation.tflite', 'models/face_detection_short_range.tflite',
  ];
  await Promise.all(files.map((file) => cache.add(file).catch(() => {})));
}

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || new URL(request.url).origin !== location.origin) return;
  event.respondWith(answer(request));
});

/** The network's answer if there is one, so that new versions are used; otherwise the cache's. */
async function answer(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) cache.put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}
