from streampgs.cli import main

main()
