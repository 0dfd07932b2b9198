// The page's scripts are fetched after its first frame: until that is drawn, the browser looks for fonts by the same threads
// that would bring thirty files.
let begun = false;

function begin() {
  if (begun) return;
  begun = true;
  document.head.append(document.getElementById('modules').content);
  import('./main.js');
}

requestAnimationFrame(() => setTimeout(begin));
setTimeout(begin, 500); // a tab in the background draws nothing
