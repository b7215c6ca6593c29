"""What a run says: events, their records, files of them (docs/TRACE.md), and the page that shows one. The files and the page know
nothing of torch."""
