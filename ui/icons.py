"""Line icons, 16 units wide, drawn with the colour of the text around them."""

_SHAPES = {
    "copy": '<path d="M5.5 5.5V3.2c0-.7.5-1.2 1.2-1.2h6.1c.7 0 1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 '
    "1.2h-2.3M3.2 5.5h6.1c.7 0 1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 1.2H3.2c-.7 0-1.2-.5-1.2-1.2V6.7"
    'c0-.7.5-1.2 1.2-1.2z"/>',
    "again": '<path d="M13.2 6.5A5.5 5.5 0 1 0 13.5 9M13.5 2.5v4h-4"/>',
    "forward": '<path d="M3 8h9.5M8.5 3.5 13 8l-4.5 4.5"/>',
    "edit": '<path d="M10.8 2.8l2.4 2.4L5.6 12.8l-3 .6.6-3z"/>',
    "left": '<path d="M10 3.5 5.5 8l4.5 4.5"/>',
    "right": '<path d="M6 3.5 10.5 8 6 12.5"/>',
    "more": '<path d="M3 8h.01M8 8h.01M13 8h.01" stroke-width="2.2" stroke-linecap="round"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "clip": '<path d="M13 7.5 8.2 12.3a3 3 0 0 1-4.3-4.3L9 3a2 2 0 0 1 2.9 2.9L7 10.8a1 1 0 0 1-1.4-1.4L10 5"/>',
    "pin": '<path d="M5.5 2.5h5l-.7 4.2 2.2 2.3H4l2.2-2.3zM8 9v4.5"/>',
    "cross": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "menu": '<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11"/>',
    "sliders": '<path d="M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6"/><circle cx="10" cy="5" r="1.5"/>'
    '<circle cx="6" cy="11" r="1.5"/>',
    "moon": '<path d="M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z"/>',
    "help": '<path d="M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.5-.7 1.1M8 11.6v.1"/><circle cx="8" cy="8" r="6"/>',
    "file": '<path d="M4 2h5l3 3v9H4zM9 2v3h3"/>',
}


def icon(name: str) -> str:
    """An SVG that screen readers skip, as its button has the label."""
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{_SHAPES[name]}</svg>'
